"""What the volumes of a pod demand of its node.

`claims` and `reach` read one object each; `free_volumes`, `storage_capacities` and `node_attachments` keep what is
looked up of many; `reader` puts their answers together for a pod.
"""
