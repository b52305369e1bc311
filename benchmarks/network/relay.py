"""A bad network: passes the packets of a TUN device on after a random delay, or drops them.

`python -m benchmarks.network.relay` in a router's namespace. It ends when its input is closed.
"""

from __future__ import annotations

import fcntl
import os
import random
import select
import struct
import sys
import time
from heapq import heappop, heappush

DEVICE = "relay"
DELAY_S = (0.02, 0.06)  # of each packet, so packets overtake each other
LOSS = 0.01
SEED = 1
READY = "ready\n"
_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000  # linux/if_tun.h
_PACKET_BYTES = 65_536


def main() -> None:
    """Open the device, print READY, and pass packets on."""
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    request = struct.pack("16sH", DEVICE.encode(), _IFF_TUN | _IFF_NO_PI)
    fcntl.ioctl(device, _TUNSETIFF, request)
    print(READY, end="", flush=True)
    chance, waiting = random.Random(SEED), list[tuple[float, int, bytes]]()
    number = 0
    while True:
        wait_s = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        readable, _, _ = select.select([device, sys.stdin], [], [], wait_s)
        if sys.stdin in readable:
            return
        if device in readable:
            packet = os.read(device, _PACKET_BYTES)
            if chance.random() >= LOSS:
                number += 1
                heappush(waiting, (time.monotonic() + chance.uniform(*DELAY_S), number, packet))
        while waiting and waiting[0][0] <= time.monotonic():
            os.write(device, heappop(waiting)[2])


if __name__ == "__main__":
    main()
