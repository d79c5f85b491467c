"""What a caller reaches: by role, by the tree of tenants, and never by how a name begins."""

import itertools

import pytest

from clearway.ports.views import TenantView
from clearway.server.access import PERMISSIONS, ROUTES, Permission, find_reach
from clearway.server.auth import Identity, Role
from support.stored import make_view


def tree(**parents):
    return [TenantView(name=name, parent=parent, weight=1.0) for name, parent in parents.items()]


TREE = tree(vision=None, students="vision", first_year="students", vision2=None, visi=None)


def reach_of(role, *tenants):
    return find_reach(Identity(user="ada", role=role, tenants=tenants, unix_user="ada"), TREE)


def test_a_user_sees_the_tenants_in_which_he_is_named():
    assert reach_of(Role.USER, "vision").tenants == {"vision"}


@pytest.mark.parametrize("role", [Role.TENANT_ADMIN, Role.VIEWER])
def test_administrators_and_viewers_also_see_what_lies_below(role):
    assert reach_of(role, "vision").tenants == {"vision", "students", "first_year"}
    assert reach_of(role, "students").tenants == {"students", "first_year"}


def test_root_is_above_all_tenants():
    assert reach_of(Role.VIEWER, "root").tenants == {"root", *(tenant.name for tenant in TREE)}


def test_an_operator_sees_all():
    assert reach_of(Role.OPERATOR).tenants is None


def test_a_circle_of_tenants_ends():
    reach = find_reach(Identity(user="a", role=Role.VIEWER, tenants=("x",)), tree(a="b", b="a"))
    assert reach.tenants == {"x"}


def test_a_query_is_narrowed_to_what_is_seen():
    reach = reach_of(Role.USER, "vision", "visi")
    assert reach.narrow(()) == ("visi", "vision")
    assert reach.narrow(("vision", "vision2", "vision")) == ("vision",)
    assert reach.narrow(("vision2", "")) is None
    assert reach_of(Role.OPERATOR).narrow(()) == ()


def test_who_is_in_no_tenant_finds_nothing():
    assert find_reach(Identity(user="ada", role=Role.USER), TREE).narrow(()) is None


@pytest.mark.parametrize(
    ("role", "user", "tenant", "may"),
    [
        (Role.USER, "ada", "vision", True),
        (Role.USER, "bob", "vision", False),
        (Role.USER, "ada", "vision2", False),
        (Role.TENANT_ADMIN, "bob", "vision", True),
        (Role.TENANT_ADMIN, "bob", "first_year", True),
        (Role.TENANT_ADMIN, "bob", "vision2", False),
        (Role.VIEWER, "ada", "vision", False),
        (Role.OPERATOR, "bob", "vision2", True),
    ],
)
def test_jobs_are_touched_by_their_user_and_by_who_answers_for_the_tenant(role, user, tenant, may):
    assert reach_of(role, "vision").may_touch(make_view(1, user=user, tenant=tenant)) is may


def test_roles_grow():
    ordered = [PERMISSIONS[role] for role in (Role.VIEWER, Role.USER, Role.TENANT_ADMIN, Role.OPERATOR)]
    for less, more in itertools.pairwise(ordered):
        assert less <= more


def test_a_viewer_changes_nothing():
    changing = {needed for (method, _), needed in ROUTES.items() if method != "GET"}
    assert not changing & PERMISSIONS[Role.VIEWER]
    assert Permission.RUNS_READ not in PERMISSIONS[Role.VIEWER]
