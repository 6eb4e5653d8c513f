"""A reader of a metadata ring in Python: takes an invitation, checks a series, prints a summary."""

import hashlib
import json
import struct
import sys

import zmq

HEAD = struct.Struct("<4sHHQ")
JOIN, READY, MESSAGE, TAKEN, HERE, LEAVE = range(1, 7)

invitation = json.loads(sys.stdin.readline())
socket = zmq.Context().socket(zmq.DEALER)
socket.curve_serverkey = invitation["server_key"].encode()
socket.curve_publickey = invitation["public_key"].encode()
socket.curve_secretkey = invitation["secret_key"].encode()
socket.rcvhwm = 0
socket.rcvtimeo = 30_000
socket.connect(invitation["endpoint"])
socket.send(HEAD.pack(b"SYMB", 1, JOIN, invitation["rank"]))

SOME = 0x53594D42


def value(data, at=0):
    """The value of CBOR at an offset, and the offset behind it: what symmetra writes, without indefinite lengths."""
    major, number, at = data[at] >> 5, data[at] & 31, at + 1
    if major == 7:
        constants = {20: False, 21: True, 22: None}
        if number in constants:
            return constants[number], at
        code, size = {26: (">f", 4), 27: (">d", 8)}[number]
        return struct.unpack_from(code, data, at)[0], at + size
    if number >= 24:
        size = 1 << number - 24
        number, at = int.from_bytes(data[at : at + size], "big"), at + size
    if major == 0:
        return number, at
    if major == 1:
        return -1 - number, at
    if major in (2, 3):
        text = bytes(data[at : at + number])
        return (text if major == 2 else text.decode()), at + number
    if major == 6:
        inner, at = value(data, at)
        big = {2: lambda: int.from_bytes(inner, "big"), 3: lambda: -1 - int.from_bytes(inner, "big")}
        return big.get(number, lambda: ("some", inner) if number == SOME else inner)(), at
    items = []
    for _ in range(number * (major - 3)):
        item, at = value(data, at)
        items.append(item)
    return (items if major == 4 else dict(zip(items[::2], items[1::2]))), at


taken, digest, ready, last = 0, hashlib.sha256(), False, b"\xf6"
while True:
    head, *payload = socket.recv_multipart()
    magic, version, kind, number = HEAD.unpack(head)
    assert (magic, version) == (b"SYMB", 1), head
    if kind == READY:
        ready = True
    elif kind == MESSAGE:
        assert ready and number == taken and len(payload) == 1, (ready, number, taken)
        digest.update(struct.pack("<Q", len(payload[0])) + payload[0])
        taken, last = taken + 1, payload[0]
        socket.send(HEAD.pack(b"SYMB", 1, TAKEN, taken))
    elif kind == LEAVE:
        assert number == taken, (number, taken)
        socket.send(HEAD.pack(b"SYMB", 1, LEAVE, taken))
        break
    else:
        assert kind == HERE, kind
# The last message is a value.
print(json.dumps({"taken": taken, "sha256": digest.hexdigest(), "last": repr(value(last)[0])}))
