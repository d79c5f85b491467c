"""Random nodes, and pods that ask much about nodes and neighbours, as the objects that users write."""

from support.kube_rules import REQUIRED
from support.kubernetes import make_node, make_pod

SPACES = {"vision": {"team": "x"}, "speech": {"team": "y"}}
"""Namespaces and their labels."""

KEYS = ("kubernetes.io/hostname", "zone", "room")

PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def draw_selector(rng):
    kind = rng.random()
    if kind < 0.6:
        return {"matchLabels": {"app": rng.choice("ab")}}
    if kind < 0.8:
        operator = rng.choice(["In", "NotIn", "Exists", "DoesNotExist"])
        one = {"key": "tier", "operator": operator}
        if "In" in operator:
            one["values"] = ["1", "2"][: rng.randint(1, 2)]
        return {"matchExpressions": [one]}
    return {}


def draw_term(rng):
    term = {"labelSelector": draw_selector(rng), "topologyKey": rng.choice(KEYS)}
    kind = rng.random()
    if kind < 0.2:
        term["namespaces"] = rng.sample(list(SPACES), rng.randint(1, 2))
    elif kind < 0.3:
        term["namespaceSelector"] = rng.choice([{}, {"matchLabels": {"team": "y"}}])
    if rng.random() < 0.2 and "matchLabels" in term["labelSelector"]:
        term["matchLabelKeys"] = ["tier"]
    return term


def draw_spread(rng, key):
    spread = {
        "topologyKey": key,
        "maxSkew": rng.randint(1, 2),
        "whenUnsatisfiable": rng.choice(["DoNotSchedule", "DoNotSchedule", "ScheduleAnyway"]),
        "labelSelector": draw_selector(rng),
    }
    if rng.random() < 0.2 and spread["whenUnsatisfiable"] == "DoNotSchedule":
        spread["minDomains"] = rng.randint(1, 3)
    if rng.random() < 0.3:
        spread["nodeAffinityPolicy"] = rng.choice(["Honor", "Ignore"])
    if rng.random() < 0.3:
        spread["nodeTaintsPolicy"] = rng.choice(["Honor", "Ignore"])
    return spread


def draw_rules(rng):
    """Part of a pod's spec: what it asks about nodes and neighbours."""
    spec, affinity = {}, {}
    if rng.random() < 0.3:
        affinity["podAffinity"] = {REQUIRED: [draw_term(rng) for _ in range(rng.randint(1, 2))]}
    if rng.random() < 0.4:
        affinity["podAntiAffinity"] = {REQUIRED: [draw_term(rng) for _ in range(rng.randint(1, 2))]}
    if rng.random() < 0.2:
        wish = {"weight": rng.randint(1, 100), "podAffinityTerm": draw_term(rng)}
        affinity.setdefault("podAntiAffinity", {})[PREFERRED] = [wish]
    if rng.random() < 0.2:
        one = {"key": "zone", "operator": rng.choice(["In", "NotIn"]), "values": ["z0"]}
        affinity["nodeAffinity"] = {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [one]}]}}
    if rng.random() < 0.2:
        one = {"key": "size", "operator": rng.choice(["Gt", "Lt"]), "values": ["5"]}
        wish = {"weight": 10, "preference": {"matchExpressions": [one]}}
        affinity.setdefault("nodeAffinity", {})[PREFERRED] = [wish]
    if affinity:
        spec["affinity"] = affinity
    if rng.random() < 0.3:
        spec["topologySpreadConstraints"] = [draw_spread(rng, key) for key in rng.sample(KEYS, rng.randint(1, 2))]
    spec["tolerations"] = [{"key": "team", "operator": "Exists"}] if rng.random() < 0.4 else []
    return spec


def draw_node(rng, name):
    labels = {"kubernetes.io/hostname": name, "size": str(rng.randint(0, 10))}
    if rng.random() < 0.9:
        labels["zone"] = f"z{rng.randint(0, 2)}"
    if rng.random() < 0.7:
        labels["room"] = f"r{rng.randint(0, 1)}"
    taints = []
    if rng.random() < 0.3:
        taints = [{"key": "team", "value": "x", "effect": rng.choice(["NoSchedule", "PreferNoSchedule"])}]
    return make_node(name, gpus=rng.choice([2, 4, 8]), labels=labels, taints=taints)


def redraw_node(rng, node):
    """The node with other labels and taints, and the devices that it had."""
    return {**draw_node(rng, node["metadata"]["name"]), "status": node["status"]}


def draw_pods(rng, number):
    """One pod, or a gang of equal ones."""
    size = rng.choice([1, 1, 1, 2, 3])
    rules, gpus = draw_rules(rng), rng.choice([0, 1, 1, 2])
    labels = {"app": rng.choice("abc")}
    if rng.random() < 0.5:
        labels["tier"] = rng.choice("123")
    more = {"annotations": {"clearway.io/gang": f"g{number}", "clearway.io/gang-size": str(size)}} if size > 1 else {}
    namespace = rng.choice(list(SPACES))
    pods = [
        make_pod(f"p{number}-{index}", gpus=gpus, labels=dict(labels), namespace=namespace, **more, **rules)
        for index in range(size)
    ]
    if size > 1 and rng.random() < 0.3:  # a launcher, or the like
        pods[0] = make_pod(f"p{number}-0", gpus=0, labels=dict(labels), namespace=namespace, **more, **draw_rules(rng))
    if rng.random() < 0.1:
        for pod in pods:
            pod["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 80}]
    return pods


def draw_other(rng, number, nodes):
    """A pod that another scheduler has put somewhere."""
    (pod, *_) = draw_pods(rng, number)
    pod["metadata"]["annotations"] = {}
    pod["spec"]["schedulerName"] = "somebody"
    pod["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
    pod["spec"]["nodeName"], pod["status"]["phase"] = rng.choice(nodes), "Running"
    return pod
