"""Torture messages: a few of our own after RFC 4475, and those of the RFC where a copy of them is at hand.

The copy is looked for in WANDERBUS_TORTURE, else in ../shared/corpora/torture beside the project.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Final

import pytest

from wanderbus.errors import SIPParseError
from wanderbus.sip.message.headers import CSeq
from wanderbus.sip.message.inspection import ElementRole, inspect
from wanderbus.sip.message.message import Message, Request, Response, encode_message, parse_message, read_for_reply
from wanderbus.sip.message.uri import SIPUri

BESIDE: Final = Path(__file__).resolve().parents[3] / "shared" / "corpora" / "torture"
TORTURE: Final = Path(os.environ.get("WANDERBUS_TORTURE", BESIDE))
needs_torture = pytest.mark.skipif(
    not TORTURE.is_dir(), reason="no torture messages: set WANDERBUS_TORTURE to a directory with those of RFC 4475"
)

TAIL: Final = "Call-ID: own@host\r\nFrom: <sip:a@b>;tag=1\r\nTo: <sip:c@d>\r\nCSeq: 1 OPTIONS\r\n\r\n"
VIA: Final = "Via: SIP/2.0/UDP h;branch=z9hG4bKa\r\n"

SPACED: Final = (
    "OPTIONS sip:a@b;unknown SIP/2.0\r\n"
    "TO :\r\n sip:c@d ;   tag    = 19\r\n"
    'from   : "J \\\\\\""   <sip:a@b>\r\n  ;\r\n  tag = 98\r\n'
    "MaX-fOrWaRdS: 0068\r\n"
    "i: x\r\nL   : 0\r\ncseq: 0009\r\n  OPTIONS\r\n"
    "Via  : SIP  /   2.0\r\n /UDP\r\n    192.0.2.2;branch=390\r\n"
    "s :\r\nOdd: ;;,,;;,;\r\n"
    "v:  SIP  / 2.0  / TCP     h   ;\r\n  branch  =   z9  ,\r\n"
    " SIP  /    2.0   / UDP  192.168.255.111   ; branch=\r\n z9hG4bK30239\r\n"
    'm:"Quoted \\"\\"" <sip:a@b> ; newparam =\r\n      newvalue ;\r\n  second ; q = 0.33\r\n\r\n'
)
CHARACTERS: Final = (
    "!odd-Method0_*+`.%indeed'~ sip:1_unusual.URI~(to-be!sure)&isn't+it$/crazy?,/;;*:&it+has=1,$o~d.('t)@e.com SIP/2.0"
    "\r\nVia: SIP/2.0/TCP h;branch=z9hG4bK-.!%66*_+`'~\r\n"
    'To: "BEL:\\\x07 NUL:\\\x00 DEL:\\\x7f" <sip:1_unusual@e.com>\r\n'
    "From: token1~` token2'+_ token3*%!.- <sip:mundane@e.com>"
    ";fromParam''~+*_!.-%=\"работающий\";tag=_token~1'+`*%!-.\r\n"
    "Call-ID: intmeth.word%ZK-!.*_+'@word`~)(><:\\/\"][?}{\r\n"
    "CSeq: 139122385 !odd-Method0_*+`.%indeed'~\r\n"
    "Max-Forwards: 255\r\nextensionHeader-!.%*+_`'~:大停電\r\n\r\n"
)
SCHEMES: Final = f"OPTIONS sip:a@b SIP/2.0\r\n{VIA}Contact: <name:John_Smith>\r\n" + TAIL.replace(
    "<sip:a@b>", "<http://www.e.com>"
).replace("<sip:c@d>", "isbn:2983792873")
IPV6: Final = "Via: SIP/2.0/UDP [2001:db8::9]:6050;received=[2001:db8::9];branch=z9hG4bKa\r\n"

OWN_GOOD: Final = {
    "3.1.1.1 white space and folding": SPACED,
    "3.1.1.2 every character a token, a user and a quoted string may have": CHARACTERS,
    "3.1.1.5 % that is no escape": (
        f"RE%47IST%45R sip:a SIP/2.0\r\n{VIA}C%6Fntact: x\r\n" + TAIL.replace("OPTIONS", "RE%47IST%45R")
    ),
    "3.1.1.9 ; in the user part": f"OPTIONS sip:user;par=u%40e.net@e.com SIP/2.0\r\n{VIA}{TAIL}",
    "3.1.1.13 no reason phrase": f"SIP/2.0 100 \r\n{VIA}{TAIL}",
    "3.3.2 unknown scheme in the Request-URI": f"OPTIONS soap.beep://192.0.2.103:3002 SIP/2.0\r\n{VIA}{TAIL}",
    "3.3.4 known schemes that are not SIP's": SCHEMES,
    "RFC 5118 4.3 an IPv6 address and its port": f"OPTIONS sip:[2001:db8::10]:5070 SIP/2.0\r\n{IPV6}{TAIL}",
}
OWN_BAD: Final = {
    "3.1.2.1 extraneous separators in Via": (
        f"OPTIONS sip:a@b SIP/2.0\r\nVia: SIP/2.0/UDP 192.0.2.15;;,;,,\r\n{TAIL}",
        400,
    ),
    "3.1.2.3 negative Content-Length": (f"OPTIONS sip:a@b SIP/2.0\r\n{VIA}Content-Length: -999\r\n{TAIL}", 400),
    "3.1.2.5 overlarge status": (f"SIP/2.0 4294967301 better not\r\n{VIA}{TAIL}", None),
    "3.1.2.7 <> around the Request-URI": (f"OPTIONS <sip:a@b> SIP/2.0\r\n{VIA}{TAIL}", 400),
    "3.1.2.9 several spaces in the Request-Line": (f"OPTIONS  sip:a@b  SIP/2.0\r\n{VIA}{TAIL}", 400),
    "3.1.2.11 escaped headers in the Request-URI": (f"OPTIONS sip:a@b?Route=%3Csip:e SIP/2.0 x\r\n{VIA}{TAIL}", 400),
    "3.1.2.13 bare ? in Contact": (
        f"OPTIONS sip:a@b SIP/2.0\r\n{VIA}Contact: sip:a@b?Route=%3Csip:e%3E\r\n{TAIL}",
        400,
    ),
    "3.1.2.15 comma in a bare display name": (
        f"OPTIONS sip:a@b SIP/2.0\r\n{VIA}" + TAIL.replace("<sip:a@b>", "Bell, Alexander <sip:a@b>"),
        400,
    ),
    "3.1.2.17 CSeq with another method": (
        f"OPTIONS sip:a@b SIP/2.0\r\n{VIA}" + TAIL.replace("1 OPTIONS", "8 INVITE"),
        400,
    ),
    "3.3.1 missing mandatory fields": ("OPTIONS sip:a@b SIP/2.0\r\nCSeq: 1 OPTIONS\r\nMax-Forwards: 70\r\n\r\n", 400),
    "3.3.8 To twice": (f"OPTIONS sip:a@b SIP/2.0\r\n{VIA}To: <sip:other@e.net>\r\n{TAIL}", 400),
    "3.3.9 Content-Length twice": (f"OPTIONS sip:a@b SIP/2.0\r\n{VIA}l: 0\r\nContent-Length: 0\r\n{TAIL}", 400),
}

CASES: Final[list[dict[str, str]]] = tomllib.loads(
    Path(__file__).with_name("torture.toml").read_text(encoding="utf-8")
)["case"]
by_case = pytest.mark.parametrize("case", CASES, ids=[case["file"] for case in CASES])


def torture(name: str) -> Message:
    return parse_message((TORTURE / f"{name}.dat").read_bytes())


@pytest.mark.parametrize("text", OWN_GOOD.values(), ids=OWN_GOOD.keys())
def test_our_good_ones_are_read_and_come_back(text: str) -> None:
    message = parse_message(text.encode())
    assert parse_message(encode_message(message)) == message


@pytest.mark.parametrize(("text", "status"), OWN_BAD.values(), ids=OWN_BAD.keys())
def test_our_bad_ones_are_refused(text: str, status: int | None) -> None:
    with pytest.raises(SIPParseError) as caught:
        parse_message(text.encode())
    assert caught.value.status == status


def test_our_messages_have_their_apparent_fields() -> None:
    spaced = parse_message(SPACED.encode())
    assert [(via.transport, via.host, via.branch) for via in spaced.vias] == [
        ("UDP", "192.0.2.2", "390"),
        ("TCP", "h", "z9"),
        ("UDP", "192.168.255.111", "z9hG4bK30239"),
    ]
    assert (spaced.from_.display, spaced.from_.tag, spaced.to.tag, spaced.max_forwards) == ('J \\"', "98", "19", 68)
    assert (spaced.header("Subject"), spaced.header("Odd"), spaced.cseq) == ("", ";;,,;;,;", CSeq(9, "OPTIONS"))
    assert spaced.contact is not None
    assert spaced.contact.params == (("newparam", "newvalue"), ("second", None), ("q", "0.33"))
    odd = parse_message(CHARACTERS.encode())
    assert isinstance(odd, Request)
    assert SIPUri.parse(odd.uri).user == "1_unusual.URI~(to-be!sure)&isn't+it$/crazy?,/;;*"
    assert odd.to.display == "BEL:\x07 NUL:\x00 DEL:\x7f"
    assert odd.from_.params[0] == ("fromParam''~+*_!.-%", "работающий")
    schemes = parse_message(SCHEMES.encode())
    assert (schemes.to.uri.is_sip, schemes.from_.tag, str(schemes.contact)) == (False, "1", "<name:John_Smith>")


@needs_torture
@by_case
def test_each_element_handles_it_as_rfc4475_requires(case: dict[str, str]) -> None:
    data = (TORTURE / case["file"]).read_bytes()
    assert {role: str(inspect(data, role)) for role in ElementRole} == {role: case[role] for role in ElementRole}


@needs_torture
@by_case
def test_parsed_messages_survive_a_round_trip_and_others_can_be_answered(case: dict[str, str]) -> None:
    data = (TORTURE / case["file"]).read_bytes()
    verdict = inspect(data, ElementRole.PROXY)
    if verdict.message is None:
        assert read_for_reply(data) is not None
        assert verdict.status in (400, 501, 505)
    else:
        assert parse_message(encode_message(verdict.message)) == verdict.message


@needs_torture
def test_every_torture_message_at_hand_is_judged_here() -> None:
    assert {path.name for path in TORTURE.glob("*.dat")} <= {case["file"] for case in CASES}


def test_those_at_hand_and_the_corpus_make_the_whole_of_rfc4475() -> None:
    index = tomllib.loads((Path(__file__).parent / "corpus" / "index.toml").read_text(encoding="utf-8"))
    sources = {case["source"] for case in (*CASES, *index["case"]) if case["source"].startswith("RFC 4475")}
    assert len(sources) == 49


@needs_torture
def test_escapes_are_kept_and_understood_rfc4475_3_1_1_3() -> None:
    message = torture("esc01")
    assert isinstance(message, Request)
    assert SIPUri.parse(message.uri).address_of_record == "sip:sips%3Auser%40example.com@example.net"
    assert message.to.uri.address_of_record == "sip:user@example.com"
    assert message.contact is not None
    assert message.contact.uri.param("lr") == ""
    assert message.contact.uri.param("name") == "v%61lue%25%34%31"


@needs_torture
def test_long_values_come_through_rfc4475_3_1_1_7() -> None:
    message = torture("longreq")
    assert [via.host for via in message.vias][:3] == ["sip33.example.com", "sip32.example.com", "sip31.example.com"]
    assert len(message.vias) == 34
    assert message.to.uri.port == 6000


@needs_torture
def test_parts_have_the_values_of_the_rfc() -> None:
    assert [contact.uri.user for contact in torture("esc02").contacts] == ["alias1", "alias3"]
    assert len(torture("mpart01").body) == 553
    noreason = torture("noreason")
    assert isinstance(noreason, Response)
    assert (noreason.status, noreason.reason) == (100, "")
    assert torture("badbranch").via.branch == "z9hG4bK"
    assert torture("bcast").vias[1].host == "255.255.255.255"
    contact = torture("cparam01").contact
    assert contact is not None
    assert (contact.uri.params, contact.params) == ((), (("unknownparam", None),))
    stored = torture("regescrt").contact
    assert stored is not None
    assert str(stored.uri) == "sip:user@example.com?Route=%3Csip:sip.example.com%3E"
    old = torture("inv2543")
    assert (old.via.branch, old.from_.tag, old.max_forwards, old.to.param("user")) == (None, None, None, "phone")
