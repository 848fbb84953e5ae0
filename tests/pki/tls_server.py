"""A gRPC server over TLS in a process of its own, as replicas make theirs: prints its port, ends when its input does."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import grpc.aio

from rayched.pki.server_credentials import ServerCertificate
from rayched.pki.tls_files import TlsFiles


async def main(directory: Path) -> None:
    server = grpc.aio.server()
    certificate = ServerCertificate(TlsFiles.within(directory))
    print(server.add_secure_port("127.0.0.1:0", certificate.credentials(asks_callers=False)), flush=True)
    await server.start()
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await server.stop(None)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
