"""Messages, session descriptions and digest values put together from the grammar, mostly right, oddly spelled.

RFC 3261 25.1, RFC 4566 9, RFC 7616 3.3 and 3.4.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Final, TypeVar

TOKEN_CHARACTERS: Final = "abcXYZ019-.!%*_+`'~"
QUOTED_CHARACTERS: Final = "aZ 9,;<>@:=()/?%\té停\u00a0\u2028\ufeff'"
METHODS: Final = ("INVITE", "ACK", "BYE", "CANCEL", "OPTIONS", "REGISTER", "UPDATE", "MESSAGE", "NEW.Method~")
HOSTS: Final = (
    *("example.org", "192.0.2.1", "[2001:db8::1]", "[::ffff:192.0.2.9]", "h", "A-b.C", "255.255.255.255", "h_x"),
)
BAD_HOSTS: Final = ("a b", "", "[::1", "::1", "[1:2]", "h:h", "é")
LARGEST: Final = "9" * 99
ODD: Final = 0.02
"""Chance of an error in each choice: a message has some tens of choices, so about half of all messages are valid."""

NAMES: Final = {
    "Via": ("v", "VIA"),
    "From": ("f", "FROM"),
    "To": ("t", "tO"),
    "Call-ID": ("i", "call-id"),
    "CSeq": ("CSEQ",),
    "Contact": ("m",),
    "Content-Length": ("l",),
    "Content-Type": ("c",),
    "Subject": ("s",),
}

BYTES_MAX: Final = 15_000
SWELLING: Final = (
    ("From", "<sip:a@h>;tag=1", ";p#=v", ""),
    ("To", "<sip:a@h", ";u#", ">"),
    ("Via", "SIP/2.0/UDP h", ";x#", ""),
    ("Via", "SIP/2.0/UDP h", ",SIP/2.0/UDP h#;branch=z9hG4bK#;received=192.0.2.1;rport=5060", ""),
    ("Contact", "<sip:a@h>", ", <sip:#@h>", ""),
    ("Contact", "<sip:a@h?a=b", "&h#=", ">"),
    ("Route", "<sip:a@h>", ', "q#" <sip:a@h;lr>', ""),
    ("Subject", "x", "\r\n y", ""),
    ("Call-ID", "c", "d", ""),
    ("Authorization", 'Digest realm="a"', ", n#=v", ""),
)
"""Fields that may be as long as anybody likes: name, start, what is repeated with # for its number, end."""

Chosen = TypeVar("Chosen")


def mostly(random: Random, usual: Sequence[Chosen], odd: Sequence[Chosen]) -> Chosen:
    """Return one of ``usual``, sometimes one of ``odd``."""
    return random.choice(odd if random.random() < ODD else usual)


def token(random: Random) -> str:
    """Return a token of some characters."""
    return "".join(random.choices(TOKEN_CHARACTERS, k=random.randint(1, 12)))


def quoted(random: Random) -> str:
    """Return a quoted-string, also of characters that nobody expects in one."""
    pieces = random.choices([*QUOTED_CHARACTERS, '\\"', "\\\\", "\\\x00", "\\\x07", "\x01"], k=random.randint(0, 14))
    return '"' + "".join(pieces) + '"'


def gap(random: Random) -> str:
    """Return white space, mostly none, sometimes a fold."""
    return random.choice(("", "", "", "", "", " ", "  ", "\t", "\r\n ", "\r\n\t "))


def params(random: Random, *known: str) -> str:
    """Return ``;name=value`` some times over."""
    written = [f";{name}" for name in known if random.random() < 0.7]
    for number in range(random.choice((0, 0, 0, 1, 2, 5))):
        value = random.choice(("", "=" + token(random), "=" + quoted(random), "=" + random.choice(HOSTS)))
        name = token(random) + mostly(random, (str(number),), ("", "é"))
        written.append(f"{gap(random)};{gap(random)}{name}{value}")
    return "".join(written)


def uri(random: Random, *, headers: bool = False) -> str:
    """Return a URI, mostly of SIP."""
    scheme = mostly(random, ("sip", "sip", "SIP", "sips"), ("tel", "http", "isbn", "", "1a"))
    users = ("", "a@", "a;b=c@", "%00%41@", "a:secret@", "+1-2@", "a&=+$,;?/b@")
    user = mostly(random, users, ("é@", "@", "a b@", "%4@"))
    host = mostly(random, HOSTS, BAD_HOSTS)
    port = mostly(random, ("", "", ":5060", ":65535"), (":0", ":65536", ":", ":x"))
    extra = mostly(random, ("", "", ";lr", ";transport=TCP", ";m%61=b"), (";a;a", ";x=%zz", ";", "; lr"))
    after = mostly(random, ("", "?a=b&c=" if headers else ""), ("?", "?a=b", "?a"))
    return f"{scheme}:{user}{host}{port}{extra}{after}"


def address(random: Random) -> str:
    """Return a name-addr or addr-spec with parameters."""
    known = ("tag=1", "expires=60", "q=0.5")
    if random.random() < 0.2:
        return uri(random) + params(random, *known)
    displays = ("", "", quoted(random), quoted(random) + " ", "A B ", token(random), "é ")
    display = mostly(random, displays, ('"', '"a" b', "a, b ", "(a) "))
    return f"{display}{gap(random)}<{uri(random, headers=True)}>{params(random, *known)}"


def via(random: Random) -> str:
    """Return a Via value."""
    transport = random.choice(("UDP", "TCP", "TLS", token(random)))
    protocol = mostly(random, ("SIP/2.0/", "SIP / 2.0 / ", "SIP/7.0/", "sip/2.0/"), ("HTTP/2.0/", "SIP//"))
    port = mostly(random, ("", ":5060", " : 5061"), (":99999", ":0", ":"))
    rport = mostly(random, ("rport", "rport=5060"), ("rport=x",))
    known = ("branch=z9hG4bK" + token(random), rport, "received=192.0.2.7")
    return f"{protocol}{transport} {mostly(random, HOSTS, BAD_HOSTS)}{port}{params(random, *known)}"


def listed(random: Random, value: Callable[[Random], str]) -> str:
    """Return some values of a list, with commas too many at times."""
    values = [value(random) for _ in range(random.choice((1, 1, 1, 2, 4)))]
    return random.choice((",", " , ", ",,", ",\r\n ")).join(values)


def number(random: Random) -> str:
    """Return a number, sometimes one at the edge of the allowed range."""
    edges = ("256", "2147483647", "2147483648", "4294967295", "4294967296", "-1", LARGEST)
    return mostly(random, ("0", "1", "0007", "70", "255"), edges)


def message(random: Random) -> bytes:
    """Return a request or a response with its fields in any order."""
    method = mostly(random, METHODS, ("é", "", "A B"))
    body = random.choice((b"", b"", b"x", description(random)))
    fields = [
        *(("Via", listed(random, via)) for _ in range(random.choice((1, 1, 2)))),
        ("From", address(random)),
        ("To", address(random)),
        ("Call-ID", mostly(random, (token(random), token(random) + "@h"), ("a b", ""))),
        ("CSeq", f"{number(random)}{gap(random) or ' '}{mostly(random, (method,), METHODS)}"),
    ]
    fields += [field for field in _further(random, body) if random.random() < 0.2]
    if random.random() < ODD:
        del fields[random.randrange(len(fields))]
    random.shuffle(fields)
    version = mostly(random, ("SIP/2.0", "sip/2.0"), ("SIP/2.1", "SIP/2", "", "SIP/2.0 "))
    start = f"{method} {uri(random)} {version}"
    if random.random() < 0.3:
        start = f"{version} {mostly(random, (100, 180, 200, 699), (0, 99, 700, 4_294_967_396))} Ok é"
    head = [start, *(f"{_spelled(random, name)}{_space(random)}:{gap(random)}{value}" for name, value in fields)]
    return "\r\n".join([*head, "", ""]).encode() + body


def swollen(random: Random) -> bytes:
    """Return a valid message of nearly the largest size, most of it in one field."""
    name, start, piece, end = random.choice(SWELLING)
    count_max = 255 if "," in piece and name != "Authorization" else BYTES_MAX
    bytes_left = random.choice((2_000, 8_000, BYTES_MAX))
    pieces = [start]
    while bytes_left > 0 and len(pieces) <= count_max:
        pieces.append(piece.replace("#", str(len(pieces))))
        bytes_left -= len(pieces[-1])
    fields = {"Via": via(random), "From": "<sip:a@h>;tag=1", "To": "<sip:b@h>", "Call-ID": "c", "CSeq": "1 BYE"}
    fields[name] = "".join(pieces) + end
    lines = ["BYE sip:b@h SIP/2.0", *(f"{key}: {value}" for key, value in fields.items()), "", ""]
    return "\r\n".join(lines).encode()


def description(random: Random) -> bytes:
    """Return a session description."""
    user = mostly(random, ("-", "mira", "é"), ("", "a b", "\u00a0"))
    origin = f"o={user} {number(random)} {number(random)} {_net(random)}"
    lines = [mostly(random, ("v=0",), ("v=1", "", "V=0")), origin, "s=-"]
    lines += mostly(random, ([f"c={_net(random)}"],), ([], [f"c={_net(random)}"] * 2))
    lines.append(mostly(random, ("t=0 0",), ("", "t", "\u00e9=0", "T=0", "a=\0")))
    for _ in range(mostly(random, (0, 1, 1, 2, 3), (64, 65))):
        port = mostly(random, ("0", "4000", "65535", "4000/2"), ("65536", "-1", "/", "x"))
        kind, protocol = random.choice((("audio", "RTP/AVP"), ("application", "UDP"), ("x/y", "é")))
        lines.append(f"m={kind} {port} {protocol}{mostly(random, (' 0 8', ' x-wanderbus'), ('', ' ', '  0'))}")
        lines += [f"c={_net(random)}"] * (random.random() < 0.3)
        lines += [f"a={_attribute(random)}" for _ in range(random.choice((0, 0, 1, 3)))]
    return random.choice(("\r\n", "\r\n", "\n")).join([*lines, ""]).encode()


def challenge(random: Random) -> bytes:
    """Return a challenge of the Digest scheme."""
    known = [
        ("realm", quoted(random)),
        ("nonce", quoted(random)),
        ("algorithm", random.choice(("MD5", "SHA-256", token(random), quoted(random)))),
        ("qop", random.choice(("auth", '"auth,auth-int"', '", ,AUTH ,"', quoted(random)))),
        ("stale", random.choice(("true", "FALSE", quoted(random)))),
        ("opaque", quoted(random)),
        (token(random), token(random)),
    ]
    return _digest(random, known, 2)


def credentials(random: Random) -> bytes:
    """Return credentials of the Digest scheme."""
    known = [(name, quoted(random)) for name in ("username", "realm", "nonce", "uri")]
    known += [
        ("response", random.choice((quoted(random), '"0123456789ABCDEF"', '"\u0130"'))),
        ("nc", mostly(random, ("00000001", "ffffffff"), ("0000000g", "1", "\u0661" * 8))),
        ("cnonce", quoted(random)),
        ("qop", random.choice(("auth", quoted(random)))),
        ("algorithm", random.choice(("MD5", "SHA-512-256", quoted(random)))),
        ("opaque", quoted(random)),
    ]
    return _digest(random, known, 5)


def _further(random: Random, body: bytes) -> list[tuple[str, str]]:
    return [
        ("Max-Forwards", number(random)),
        ("Expires", number(random)),
        ("Contact", random.choice(("*", listed(random, address), listed(random, address)))),
        ("Route", listed(random, address)),
        ("Record-Route", listed(random, address)),
        ("Content-Length", mostly(random, (str(len(body)),), (number(random), "x"))),
        ("Content-Type", random.choice(("application/sdp", "Text/Plain;a=b", quoted(random), ""))),
        ("Require", listed(random, token)),
        ("Accept", listed(random, token)),
        ("Authorization", credentials(random).decode()),
        ("WWW-Authenticate", challenge(random).decode()),
        ("Date", "Sat, 13 Nov 2010 23:29:00 GMT"),
        ("Subject", quoted(random)),
        (token(random), quoted(random)),
    ]


def _space(random: Random) -> str:
    return mostly(random, ("", "", " ", " \t"), ("\r\n ", "\u00a0"))


def _spelled(random: Random, name: str) -> str:
    return random.choice((name, name, *NAMES.get(name, (name.upper(),))))


def _net(random: Random) -> str:
    usual = (
        *("IN IP4 192.0.2.1", "IN IP4 224.2.1.1/127/3", "IN IP6 2001:db8::1"),
        *("IN IP4 h.example.org", "IN IP6 ::", "IN IP6 a.b"),
    )
    odd = ("IN IP6 [::1]", "IN IP4 ::1", "IN IP6 1:2", "IN IP4 ", "IN  IP4 h", "OUT IP4 h", "IN IP4 é")
    return mostly(random, usual, odd)


def _attribute(random: Random) -> str:
    value = mostly(random, ("", ":" + token(random), ":a:b c", ": ", ":\u00a0\u2028é"), (":", ":\0"))
    name = mostly(random, ("sendrecv", "rtpmap", "x-9"), ("a b", "", "é", '"'))
    return name + value


def _digest(random: Random, known: list[tuple[str, str]], needed: int) -> bytes:
    """Join the first ``needed`` values, nearly always all of them, with some of the others."""
    chosen = [
        f"{name}{random.choice(('', '', ' '))}={random.choice(('', '', ' '))}{value}"
        for index, (name, value) in enumerate(known)
        if random.random() < (0.98 if index < needed else 0.5)
    ]
    random.shuffle(chosen)
    scheme = mostly(random, ("Digest ", "Digest ", "digest  ", "DIGEST "), ("Basic ", "", "Digest\t"))
    text = scheme + random.choice((", ", ",", " ,\t", ",,")).join(chosen)
    return text.encode()
