"""The demands of a pod's volumes on its node.

`claims` and `reach` read one object each; `free_volumes`, `storage_capacities` and `node_attachments` index many
objects; `reader` combines their answers for a pod.
"""
