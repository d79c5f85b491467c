"""A client of the API server that speaks over real sockets with a server that a test plays."""

import asyncio

from aiohttp import web

from clearway.adapters.kubernetes.client import Client
from clearway.adapters.kubernetes.config import KubernetesConfig

KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{{name: c, cluster: {{server: "{url}"}}}}]
users: [{{name: u, user: {user}}}]
contexts: [{{name: x, context: {{cluster: c, user: u}}}}]
current-context: x
"""


def talk(tmp_path, handle, speak, user="{token: secret}"):
    """Run `speak(client)` against a server that answers every request by `handle`; returns what it returns."""

    async def run():
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", handle)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = site._server.sockets[0].getsockname()[1]
        path = tmp_path / "kubeconfig"
        path.write_text(KUBECONFIG.format(url=f"http://127.0.0.1:{port}", user=user))
        client = await Client.connect(KubernetesConfig(kubeconfig=str(path)))
        try:
            return await speak(client)
        finally:
            await client.close()
            await runner.cleanup()

    return asyncio.run(run())
