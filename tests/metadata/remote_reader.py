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

taken, digest, ready = 0, hashlib.sha256(), False
while True:
    head, *payload = socket.recv_multipart()
    magic, version, kind, number = HEAD.unpack(head)
    assert (magic, version) == (b"SYMB", 1), head
    if kind == READY:
        ready = True
    elif kind == MESSAGE:
        assert ready and number == taken and len(payload) == 1, (ready, number, taken)
        digest.update(struct.pack("<Q", len(payload[0])) + payload[0])
        taken += 1
        socket.send(HEAD.pack(b"SYMB", 1, TAKEN, taken))
    elif kind == LEAVE:
        assert number == taken, (number, taken)
        socket.send(HEAD.pack(b"SYMB", 1, LEAVE, taken))
        break
    else:
        assert kind == HERE, kind
print(json.dumps({"taken": taken, "sha256": digest.hexdigest()}))
