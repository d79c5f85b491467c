"""Objects of `resource.k8s.io/v1` as drivers and users write them; builders state only what matters."""

DRIVER = "gpu.example.com"


def make_slice(node, count, *, driver=DRIVER, first=0, product="X1", generation=1, slices=1, part=0):
    """Devices gpu-`first` and so on of a node, all of the product."""
    devices = [
        {
            "name": f"gpu-{number}",
            "attributes": {
                "productName": {"string": product},
                "index": {"int": number},
                "socket": {"int": number // 2},
                "driverVersion": {"version": "1.2.3"},
            },
            "capacity": {"memory": {"value": "80Gi"}},
        }
        for number in range(first, first + count)
    ]
    pool = {"name": node, "generation": generation, "resourceSliceCount": slices}
    name = f"{node}-{driver.replace('.', '-')}-{generation}-{part}"
    return {
        "metadata": {"name": name, "uid": f"slice/{name}"},
        "spec": {"driver": driver, "nodeName": node, "pool": pool, "devices": devices},
    }


def make_class(name="gpu", expression=f'device.driver == "{DRIVER}"', config=()):
    return {
        "metadata": {"name": name, "uid": f"class/{name}"},
        "spec": {"selectors": [{"cel": {"expression": expression}}], "config": list(config)},
    }


def make_request(count=1, *, name="r", expressions=(), device_class="gpu", **more):
    selectors = [{"cel": {"expression": one}} for one in expressions]
    return {"name": name, "exactly": {"deviceClassName": device_class, "count": count, "selectors": selectors, **more}}


def make_claim(name, *requests, constraints=(), devices=None, node="n1", users=()):
    """A claim; with `devices`, names of those that it has on the node."""
    status = {}
    if devices is not None:
        results = [{"request": "r", "driver": DRIVER, "pool": node, "device": one} for one in devices]
        field = {"key": "metadata.name", "operator": "In", "values": [node]}
        selector = {"nodeSelectorTerms": [{"matchFields": [field]}]}
        status["allocation"] = {"devices": {"results": results}, "nodeSelector": selector}
    if users:
        status["reservedFor"] = [{"resource": "pods", "name": one, "uid": one} for one in users]
    return {
        "metadata": {"name": name, "namespace": "default", "uid": f"claim/{name}"},
        "spec": {"devices": {"requests": list(requests or [make_request()]), "constraints": list(constraints)}},
        "status": status,
    }
