"""Kubernetes: Clearway as the scheduler of every pod that names it.

Users create pods as they always did; nobody submits anything to Clearway. What pods belong together (`gangs`) is one
job of the engine; a start is a binding of all its pods, a stop their eviction. The parts:

- `parse`: objects of the API server as frozen facts; pure. `facts` are what comes out.
- `placement`: which nodes a pod may lie on, and why not; pure.
- `gangs`: which pods are one job, and how many there must be; pure.
- `book`: nodes, pods and jobs as they were last seen, events and actions that follow; no I/O.
- `client`: the calls; `backend`: the port; `intake`: jobs to the control plane, reasons to the pods.
"""
