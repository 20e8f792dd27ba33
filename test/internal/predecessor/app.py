"""The service sandboxd with given settings: a JSON object in BERTH_TEST_SANDBOXD."""

import json
import os

from pydantic_ai_backends.remote.server import SandboxdConfig, create_app

app = create_app(SandboxdConfig(**json.loads(os.environ["BERTH_TEST_SANDBOXD"])))
