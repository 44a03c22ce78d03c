"""On rank 0: the server at which all ranks find one another, as horovodrun starts it."""

import os
import threading

if os.environ["HOROVOD_RANK"] == "0":
    from horovod.runner.common.util.hosts import get_host_assignments, parse_hosts
    from horovod.runner.http.http_server import RendezvousHandler, RendezvousHTTPServer

    host, ranks = os.environ["HOROVOD_HOSTNAME"], int(os.environ["HOROVOD_SIZE"])
    address = os.environ["HOROVOD_GLOO_RENDEZVOUS_ADDR"]
    port = int(os.environ["HOROVOD_GLOO_RENDEZVOUS_PORT"])
    server = RendezvousHTTPServer((address, port), RendezvousHandler, False)
    server.init(get_host_assignments(parse_hosts(f"{host}:{ranks}"), ranks))
    threading.Thread(target=server.serve_forever, daemon=True).start()
