"""Our API group: names, models of the custom resources, and the definitions generated from them."""
