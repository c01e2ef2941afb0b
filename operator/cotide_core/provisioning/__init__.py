"""The machines of each kind at each time and data centre: pure decisions by model predictive control.

`capacity` plans machines of one cluster (Zhang and Boutaba 2014, sec. III: container-based provisioning); `placement`
plans servers over data centres (sec. II: dynamic service placement). Both build a program (`programs`) that a solver
behind a protocol answers, and turn the answer into a plan.
"""
