"""Rules about neighbours, as `model.neighbours` has them, over the tables of `crowds`: leaf functions.

Only classes with `CLASS_SOCIAL` come here; a plain job pays one look at that column.
"""

from typing import Final

from clearway.engine.box import META_BEGIN_IN, Box
from clearway.engine.compiled import compiled_inside
from clearway.engine.tables import (
    CLASS_LIKED,
    CLASS_RULES_BEGIN,
    CLASS_RULES_END,
    NONE,
    RULE_APART,
    RULE_BESIDE,
    RULE_DOMAINS_MIN,
    RULE_EVEN,
    RULE_KIND,
    RULE_MEMBER,
    RULE_ROOM,
    RULE_SELF,
    RULE_SKEW,
    RULE_TALLY,
    RULE_WEIGHT,
    TALLY_AT_LEAST,
    TALLY_DOMAINS,
    TALLY_LEAST,
    TALLY_NEXT,
    TALLY_TOTAL,
)

NOWHERE: Final = 1 << 40
"""Count of a domain that has no node: never the least. More than any crowd has replicas."""

WISH_SCORE: Final = 8.0
"""What the heaviest wish weighs against packing and the rest, whose scores are about 1: wishes come first."""

CROWDED: Final = 16
"""Neighbours that a wish tells apart: more make no difference."""


@compiled_inside
def find_least(box: Box, tally: int) -> None:
    """Work out anew the smallest count of any domain of the tally, and how many domains have it."""
    least = NOWHERE
    at_least = 0
    for domain in range(box.counts.shape[1]):
        count = box.counts[tally, domain]
        if count < least:
            least = count
            at_least = 1
        elif count == least:
            at_least += 1
    box.tallies[TALLY_LEAST, tally] = least
    box.tallies[TALLY_AT_LEAST, tally] = at_least


@compiled_inside
def count_in_tally(box: Box, tally: int, node: int, count: int) -> None:
    """`count` more of the crowd lie on the node (fewer, if negative)."""
    domain = box.domains[tally, node]
    if domain == NONE:
        return
    before = box.counts[tally, domain]
    box.counts[tally, domain] = before + count
    box.tallies[TALLY_TOTAL, tally] += count
    least = box.tallies[TALLY_LEAST, tally]
    if before == least and count > 0:
        box.tallies[TALLY_AT_LEAST, tally] -= 1
        if box.tallies[TALLY_AT_LEAST, tally] == 0:
            find_least(box, tally)
    elif before + count < least:
        box.tallies[TALLY_LEAST, tally] = before + count
        box.tallies[TALLY_AT_LEAST, tally] = 1
    elif before + count == least and count != 0:
        box.tallies[TALLY_AT_LEAST, tally] += 1


@compiled_inside
def count_neighbours(box: Box, cls: int, node: int, count: int) -> None:
    """`count` more replicas of the class lie on the node (fewer, if negative): count them in all of its crowds."""
    for rule in range(box.classes[CLASS_RULES_BEGIN, cls], box.classes[CLASS_RULES_END, cls]):
        if box.rules[RULE_KIND, rule] != RULE_MEMBER:
            continue
        tally = box.rules[RULE_TALLY, rule]
        while tally != NONE:
            count_in_tally(box, tally, node, count * box.rules[RULE_SKEW, rule])
            tally = box.tallies[TALLY_NEXT, tally]


@compiled_inside
def may_join(box: Box, cls: int, node: int, evenly: bool) -> bool:
    """Whether all required rules of the class let one more replica of it lie on the node; those about evenness only if
    `evenly`, for others that join elsewhere can change these."""
    begin_in = box.meta[META_BEGIN_IN]
    for rule in range(box.classes[CLASS_RULES_BEGIN, cls], box.classes[CLASS_RULES_END, cls]):
        kind = box.rules[RULE_KIND, rule]
        if kind == RULE_MEMBER or box.rules[RULE_WEIGHT, rule] != 0:
            continue
        tally = box.rules[RULE_TALLY, rule]
        domain = box.domains[tally, node]
        if kind == RULE_APART:
            if domain != NONE and box.counts[tally, domain] > 0:
                return False
            continue
        if domain == NONE:
            return False
        if kind == RULE_ROOM:
            if box.counts[tally, domain] + box.rules[RULE_SKEW, rule] > 0:
                return False
            continue
        if kind == RULE_BESIDE:
            if box.counts[tally, domain] > 0:
                continue
            if box.tallies[TALLY_TOTAL, tally] > 0 or box.rules[RULE_SELF, rule] == 0:
                return False
            if begin_in != NONE and box.domains[tally, begin_in] != domain:
                return False
        elif evenly and unevenness(box, rule, tally, domain) > box.rules[RULE_SKEW, rule]:
            return False
    return True


@compiled_inside
def unevenness(box: Box, rule: int, tally: int, domain: int) -> int:
    """By how many the domain would have more of the crowd, with one more replica, than the domain with the fewest."""
    least: int = box.tallies[TALLY_LEAST, tally]
    if box.tallies[TALLY_DOMAINS, tally] < box.rules[RULE_DOMAINS_MIN, rule]:
        least = 0
    there: int = box.counts[tally, domain] + box.rules[RULE_SELF, rule]
    return there - least


@compiled_inside
def beginning_tally(box: Box, cls: int) -> int:
    """The tally in whose domains all replicas of a gang must lie, for their crowd lies nowhere yet; NONE if none."""
    for rule in range(box.classes[CLASS_RULES_BEGIN, cls], box.classes[CLASS_RULES_END, cls]):
        tally: int = box.rules[RULE_TALLY, rule]
        is_required = box.rules[RULE_KIND, rule] == RULE_BESIDE and box.rules[RULE_WEIGHT, rule] == 0
        if is_required and box.tallies[TALLY_TOTAL, tally] == 0:
            return tally
    return NONE


@compiled_inside
def apart_from_itself(box: Box, cls: int, node: int) -> bool:
    """Whether no two replicas of the class may lie on this node."""
    for rule in range(box.classes[CLASS_RULES_BEGIN, cls], box.classes[CLASS_RULES_END, cls]):
        is_required = box.rules[RULE_KIND, rule] == RULE_APART and box.rules[RULE_WEIGHT, rule] == 0
        is_self = box.rules[RULE_SELF, rule] == 1
        if is_required and is_self and box.domains[box.rules[RULE_TALLY, rule], node] != NONE:
            return True
    return False


@compiled_inside
def room_for_extras(box: Box, cls: int, node: int, count: int) -> int:
    """`count`, or the fewer replicas of the class that the node's extras are enough for."""
    for rule in range(box.classes[CLASS_RULES_BEGIN, cls], box.classes[CLASS_RULES_END, cls]):
        if box.rules[RULE_KIND, rule] == RULE_ROOM:
            left = -box.counts[box.rules[RULE_TALLY, rule], node]
            count = min(count, max(left, 0) // box.rules[RULE_SKEW, rule])
    return count


@compiled_inside
def wish_score(box: Box, cls: int, node: int) -> float:
    """How far the node is from what the class wishes; lower is better."""
    score = 0.0
    liked = box.classes[CLASS_LIKED, cls]
    if liked != NONE:
        score -= box.liked[liked, node] * WISH_SCORE / 100.0
    for rule in range(box.classes[CLASS_RULES_BEGIN, cls], box.classes[CLASS_RULES_END, cls]):
        weight = box.rules[RULE_WEIGHT, rule]
        if weight == 0:
            continue
        tally = box.rules[RULE_TALLY, rule]
        domain = box.domains[tally, node]
        kind = box.rules[RULE_KIND, rule]
        if domain == NONE:
            count = CROWDED if kind == RULE_EVEN else 0
        elif kind == RULE_EVEN:
            count = min(unevenness(box, rule, tally, domain), CROWDED)
        else:
            count = min(box.counts[tally, domain], CROWDED)
        if kind == RULE_BESIDE:
            count = -count
        score += weight * count * WISH_SCORE / (100.0 * CROWDED)
    return score
