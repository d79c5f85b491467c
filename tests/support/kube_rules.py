"""The rules of Kubernetes about where a pod may lie, read off the objects as they are written: for judging bindings.

Nothing of the adapter is used. Sources: the API's own field descriptions, and the plugins NodeAffinity,
TaintToleration, NodePorts, NodeResourcesFit, PodTopologySpread and InterPodAffinity of kube-scheduler.
"""

from collections import Counter
from decimal import Decimal

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def find_violation(pod, node, lying, nodes, spaces):
    """Which rule forbids to put the pod on the node; "" = none. lying: pods that lie somewhere, by `spec.nodeName`,
    as they are now. nodes: by name. spaces: labels of namespaces, by name."""
    there = [one for one in lying if one["spec"]["nodeName"] == node["metadata"]["name"]]
    return (
        _affinity(pod, node)
        or _taints(pod, node)
        or _resources(pod, node, there)
        or _ports(pod, there)
        or _spread(pod, node, lying, nodes)
        or _apart(pod, node, lying, nodes, spaces)
        or _near(pod, node, lying, nodes, spaces)
    )


def labels_of(thing):
    return thing["metadata"].get("labels", {})


# --- the node alone ---------------------------------------------------------------------------------------------------


def _meets(one, labels):
    value = labels.get(one["key"])
    match one["operator"]:
        case "In":
            return value in one["values"]
        case "NotIn":
            return value not in one["values"]
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt":
            return value is not None and value.lstrip("-").isdecimal() and int(value) > int(one["values"][0])
        case "Lt":
            return value is not None and value.lstrip("-").isdecimal() and int(value) < int(one["values"][0])
    raise AssertionError(one)


def _affinity(pod, node):
    labels = labels_of(node)
    if any(labels.get(key) != value for key, value in pod["spec"].get("nodeSelector", {}).items()):
        return "node selector"
    required = pod["spec"].get("affinity", {}).get("nodeAffinity", {}).get(REQUIRED)
    if required is None:
        return ""
    for term in required["nodeSelectorTerms"]:
        fields = {"metadata.name": node["metadata"]["name"]}
        rules, by_name = term.get("matchExpressions", []), term.get("matchFields", [])
        if (rules or by_name) and all(_meets(r, labels) for r in rules) and all(_meets(r, fields) for r in by_name):
            return ""
    return "node affinity"


def _taints(pod, node):
    taints = list(node["spec"].get("taints", []))
    if node["spec"].get("unschedulable"):
        taints.append({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"})
    for taint in taints:
        if taint["effect"] != "PreferNoSchedule" and not any(_bears(one, taint) for one in pod["spec"]["tolerations"]):
            return f"taint {taint}"
    return ""


def _bears(toleration, taint):
    if toleration.get("effect") and toleration["effect"] != taint["effect"]:
        return False
    if toleration.get("operator") == "Exists":
        return toleration.get("key", "") in ("", taint["key"])
    return toleration.get("key") == taint["key"] and toleration.get("value", "") == taint.get("value", "")


SUFFIXES = {"m": Decimal("0.001"), "Ki": Decimal(2**10), "Mi": Decimal(2**20), "Gi": Decimal(2**30)}


def _quantity(text):
    for suffix, factor in SUFFIXES.items():
        if text.endswith(suffix):
            return Decimal(text.removesuffix(suffix)) * factor
    return Decimal(text)


def _requests(pod):
    asked = Counter({"pods": Decimal(1)})
    for container in pod["spec"]["containers"]:
        for name, text in container["resources"]["requests"].items():
            asked[name] += _quantity(text)
    return asked


def _resources(pod, node, there):
    free = {name: _quantity(text) for name, text in node["status"]["allocatable"].items()}
    for one in there:
        for name, amount in _requests(one).items():
            free[name] = free.get(name, 0) - amount
    short = [name for name, amount in _requests(pod).items() if amount > free.get(name, 0)]
    return f"too little {short}" if short else ""


def _host_ports(pod):
    ports = [port for container in pod["spec"]["containers"] for port in container.get("ports", ())]
    return {(port["hostPort"], port.get("protocol", "TCP")) for port in ports if "hostPort" in port}


def _ports(pod, there):
    return "host port" if any(_host_ports(pod) & _host_ports(one) for one in there) else ""


# --- the neighbours ---------------------------------------------------------------------------------------------------


def _selects(selector, labels):
    if selector is None:
        return False
    return all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items()) and all(
        _meets(one, labels) for one in selector.get("matchExpressions", [])
    )


def _chooses(term, owner, other, spaces):
    """Whether a term of `owner`'s pod affinity is about the other pod."""
    space = other["metadata"]["namespace"]
    names, by_labels = term.get("namespaces", []), term.get("namespaceSelector")
    if not names and by_labels is None:
        names = [owner["metadata"]["namespace"]]
    is_there = space in names or (by_labels is not None and _selects(by_labels, spaces.get(space, {})))
    mine = labels_of(owner)
    keys = [key for key in term.get("matchLabelKeys", []) if key in mine]  # the server writes them into the selector
    is_like = all(labels_of(other).get(key) == mine[key] for key in keys)
    return is_there and is_like and _selects(term.get("labelSelector"), labels_of(other))


def _terms(pod, kind):
    return pod["spec"].get("affinity", {}).get(kind, {}).get(REQUIRED, [])


def _value(nodes, pod, key):
    node = nodes.get(pod["spec"]["nodeName"])
    return None if node is None else labels_of(node).get(key)


def _apart(pod, node, lying, nodes, spaces):
    for term in _terms(pod, "podAntiAffinity"):
        value = labels_of(node).get(term["topologyKey"])
        for other in lying if value is not None else ():
            if _value(nodes, other, term["topologyKey"]) == value and _chooses(term, pod, other, spaces):
                return f"anti-affinity to {other['metadata']['name']}"
    for other in lying:
        for term in _terms(other, "podAntiAffinity"):
            value = labels_of(node).get(term["topologyKey"])
            is_near = value is not None and _value(nodes, other, term["topologyKey"]) == value
            if is_near and _chooses(term, other, pod, spaces):
                return f"{other['metadata']['name']} has anti-affinity to it"
    return ""


def _near(pod, node, lying, nodes, spaces):
    terms = _terms(pod, "podAffinity")
    if not terms:
        return ""
    if any(term["topologyKey"] not in labels_of(node) for term in terms):
        return "no such domain for affinity"
    matching = [other for other in lying if all(_chooses(term, pod, other, spaces) for term in terms)]
    values = [(key, _value(nodes, other, key)) for other in matching for key in {t["topologyKey"] for t in terms}]
    values = [pair for pair in values if pair[1] is not None]
    if all((term["topologyKey"], labels_of(node)[term["topologyKey"]]) in values for term in terms):
        return ""
    if not values and all(_chooses(term, pod, pod, spaces) for term in terms):
        return ""
    return "affinity"


def _counts(selector, labels):
    """As kube-scheduler counts for a spread: an empty selector, which selects everything elsewhere, counts nothing."""
    return any((selector or {}).values()) and _selects(selector, labels)


def _spread(pod, node, lying, nodes):
    hard = [
        one
        for one in pod["spec"].get("topologySpreadConstraints", [])
        if one.get("whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule"
    ]
    for one in hard:
        key = one["topologyKey"]
        if key not in labels_of(node):
            return "no such domain for spread"
        counts = Counter()
        for name, other in nodes.items():
            if any(each["topologyKey"] not in labels_of(other) for each in hard):
                continue
            if one.get("nodeAffinityPolicy", "Honor") == "Honor" and _affinity(pod, other):
                continue
            if one.get("nodeTaintsPolicy", "Ignore") == "Honor" and _taints(pod, other):
                continue
            counts[labels_of(other)[key]] += sum(
                other_pod["spec"]["nodeName"] == name
                and "deletionTimestamp" not in other_pod["metadata"]
                and other_pod["metadata"]["namespace"] == pod["metadata"]["namespace"]
                and _counts(one.get("labelSelector"), labels_of(other_pod))
                for other_pod in lying
            )
        least = min(counts.values(), default=0) if len(counts) >= one.get("minDomains", 1) else 0
        itself = int(_selects(one.get("labelSelector"), labels_of(pod)))
        if counts[labels_of(node)[key]] + itself - least > one["maxSkew"]:
            return f"spread over {key}: {dict(counts)}"
    return ""
