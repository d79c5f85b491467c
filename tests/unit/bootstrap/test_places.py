"""Where a control plane keeps its things, and in whose name."""

import os
import pwd

from clearway.bootstrap.places import current_user

NAMELESS = 3_999_999_999
"""A user id that no machine gives a name."""


def test_a_user_without_a_name_goes_by_its_number(monkeypatch):
    assert current_user() == pwd.getpwuid(os.geteuid()).pw_name
    monkeypatch.setattr(os, "geteuid", lambda: NAMELESS)
    assert current_user() == str(NAMELESS)
