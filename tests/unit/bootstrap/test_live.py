"""What a control plane refuses before it starts."""

import pytest

from clearway.bootstrap.live import UpRequest, start_control_plane
from clearway.model.errors import InputError


def test_power_budget_is_refused_where_no_device_can_be_capped(tmp_path):
    config = tmp_path / "clearway.yaml"
    config.write_text("power_budget: 2kW\n")
    request = UpRequest(config_file=config, state_dir=tmp_path / "state", backend="kubernetes")
    with pytest.raises(InputError, match="power_budget: expected none with --backend kubernetes"):
        start_control_plane(request, lambda done, total: None)
