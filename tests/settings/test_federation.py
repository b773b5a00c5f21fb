"""File of a federation (SPEC M-01, M-05, S-01)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from wanderbus.channels.causal.domain_past import PAST_DOMAINS_MAX
from wanderbus.errors import ConfigurationError
from wanderbus.federation.methods.filter_bounds import DOMAINS_MAX, TYPES_MAX
from wanderbus.rudp.keys import KeyPair
from wanderbus.settings.federation import GATEWAYS_MAX, Federation, FederationSettings
from wanderbus.settings.reading import make, read

OWN, BETA, GAMMA = (KeyPair(bytes([number]) * 32).public.hex() for number in (1, 2, 3))
FILE = f"""
name = "alpha.example"
public_key = "{OWN}"

[gateways]
a1 = "192.0.2.1:5900"
a2 = "[2001:db8::1]:5900"

[methods]
Price = "tree"

[domains."beta.example"]
public_key = "{BETA}"
gateways = {{ b1 = "192.0.2.9:5900", b2 = "[2001:db8::9]:5900" }}
receive = ["Departure", "Stock"]
send = ["Price"]
events_per_s_max = 100
distance_ms = 20

[domains."gamma.example"]
public_key = "{GAMMA}"
gateways = {{ c1 = "192.0.2.17:5900" }}
backbone = false
"""


def federation(text: str) -> Federation:
    return Federation(make(FederationSettings, read(FederationSettings, text, Path("federation.toml"))))


def test_links_types_and_methods_of_a_file() -> None:
    found = federation(FILE)
    assert (found.name, found.public_key.hex(), found.domains) == (
        "alpha.example",
        OWN,
        ("beta.example", "gamma.example"),
    )
    beta, gamma = map(bytes.fromhex, (BETA, GAMMA))
    assert found.links_of("a1") == {
        "beta.example/b1": (("192.0.2.9", 5900), beta),
        "gamma.example/c1": (("192.0.2.17", 5900), gamma),
    }
    assert found.links_of("a2") == {"beta.example/b2": (("2001:db8::9", 5900), beta)}, "the other IP version"
    assert found.key_of("gamma.example") == gamma
    assert [found.method_of(each) for each in ("Price", "Stock")] == ["tree", "multicast"]
    assert found.backbone == ("alpha.example", "beta.example")
    assert federation(f"backbone = false\n{FILE}").backbone == ("beta.example",)
    assert found.distances_ms == {"beta.example": 20.0}
    assert found.types == ("Departure", "Price", "Stock")


def test_types_that_are_shared_with_one_domain_alone() -> None:
    found = federation(FILE)
    assert found.receives("beta.example") == frozenset({"Departure", "Stock"})
    assert found.sends("beta.example") == frozenset({"Price"})
    for name in ("gamma.example", "delta.example"):
        assert (found.receives(name), found.sends(name)) == (frozenset(), frozenset()), "nothing unless it is named"


def test_s01_gateways_that_are_looked_up() -> None:
    found = federation(FILE.replace('{ c1 = "192.0.2.17:5900" }', '"dns"'))
    assert found.looked_up == {"gamma.example": bytes.fromhex(GAMMA)}
    assert list(found.links_of("a1")) == ["beta.example/b1"]
    assert federation(FILE).looked_up == {}


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ('name = "alpha.example"', "", "name must be given"),
        ('"alpha.example"', '"Alpha.example"', "name: 'Alpha.example' is not a domain (expected a name such as"),
        ('"alpha.example"', '"192.0.2.1"', "name: '192.0.2.1' is not a domain"),
        ('"alpha.example"', f'"{"a" * 201}"', "name: 'aaaa"),
        ('"alpha.example"', '"alpha..example"', "name: 'alpha..example' is not a domain"),
        ('"alpha.example"', '"beta.example"', "domains.beta.example: it is the own domain"),
        ('"gamma.example"', '"gamma/c1"', "domains.gamma/c1: 'gamma/c1' is not a domain"),
        (f'"{OWN}"', '"abcd"', "public_key: it is not a public key of 64 hexadecimal digits"),
        (f'"{OWN}"', f'"{"00" * 32}"', "public_key: it is not a public key"),
        (f'"{BETA}"', '"xy"', "domains.beta.example.public_key: it is not a public key"),
        (f'"{GAMMA}"', f'"{BETA.upper()}"', "domains.gamma.example.public_key: it is also the key of beta.example"),
        (f'"{GAMMA}"', f'"{OWN}"', "domains.gamma.example.public_key: it is also the key of the own domain"),
        ('"192.0.2.1:5900"', '"192.0.2.1"', "gateways.a1: '192.0.2.1' cannot be used (expected host:port"),
        ('"192.0.2.1:5900"', '"a1.alpha.example:5900"', "gateways.a1: 'a1.alpha.example:5900' cannot be used"),
        ('"192.0.2.1:5900"', '"0.0.0.0:5900"', "gateways.a1: '0.0.0.0:5900' cannot be used"),
        ('"192.0.2.1:5900"', '"192.0.2.9:5900"', "domains.beta.example.gateways.b1: gateways.a1 has the same address"),
        ("a1 =", '"a/1" =', "gateways: 'a/1' is not a name of a gateway"),
        ("{ c1 =", '{ "c 1" =', "domains.gamma.example.gateways: 'c 1' is not a name of a gateway"),
        ('"192.0.2.17:5900"', '"192.0.2.17:0"', "domains.gamma.example.gateways.c1: '192.0.2.17:0' cannot be used"),
        ('{ c1 = "192.0.2.17:5900" }', '"srv"', "domains.gamma.example.gateways: invalid value 'srv'"),
        ('{ c1 = "192.0.2.17:5900" }', "{}", "domains.gamma.example.gateways: there is none"),
        ('a1 = "192.0.2.1:5900"\n', "", "domains.gamma.example.gateways: none has the IP version of an own gateway"),
        ('["Price"]', '["Pri*"]', "domains.beta.example.send: 'Pri*' has a wildcard"),
        ('["Price"]', '["a.#"]', "domains.beta.example.send: 'a.#' has a wildcard"),
        ('["Price"]', '[""]', "domains.beta.example.send: a type has 0 characters"),
        ('["Price"]', f'["{"x" * 257}"]', "domains.beta.example.send: a type has 257 characters"),
        ('["Price"]', '["Price", "Price"]', "domains.beta.example.send: 'Price' is there twice"),
        ('["Price"]', '"Price"', "domains.beta.example.send: invalid value 'Price' (expected a list of texts)"),
        ("send =", "sends =", "domains.beta.example.sends: unknown key (expected public_key, gateways, receive"),
        (f'public_key = "{GAMMA}"', "", "domains.gamma.example.public_key: must be given (expected a text)"),
        ('Price = "tree"', 'Price = "flood"', "methods.Price: invalid value 'flood' (expected \"multicast\" or"),
        ('Price = "tree"', '"*" = "tree"', "methods: '*' has a wildcard"),
        (
            "events_per_s_max = 100",
            "events_per_s_max = 0",
            "domains.beta.example.events_per_s_max: 0.0 is out of range",
        ),
        (
            "events_per_s_max = 100",
            "events_per_s_max = inf",
            "domains.beta.example.events_per_s_max: invalid value inf",
        ),
        ("distance_ms = 20", "distance_ms = -1", "domains.beta.example.distance_ms: -1.0 is below 0"),
        ("[methods]", "[method]", "method: invalid value a table"),
    ],
)
def test_contradictions_and_their_keys(old: str, new: str, error: str) -> None:
    assert old in FILE
    with pytest.raises(ConfigurationError, match=re.escape(error)) as raised:
        federation(FILE.replace(old, new, 1))
    assert "\n" not in str(raised.value)


def test_a_domain_without_a_link_shares_a_type_with_a_tree() -> None:
    text = FILE.replace('gateways = { b1 = "192.0.2.9:5900", b2 = "[2001:db8::9]:5900" }\n', "")
    found = federation(text)
    assert found.links_of("a1").keys() == {"gamma.example/c1"}
    error = "domains.beta.example.gateways: there is none; name one with its address, or share a type"
    with pytest.raises(ConfigurationError, match=re.escape(error)):
        federation(text.replace('Price = "tree"', 'Stock = "rendezvous"'))


def test_numbers_that_are_given_in_a_program() -> None:
    for key, value in (("events_per_s_max", float("nan")), ("events_per_s_max", -1.0), ("distance_ms", float("inf"))):
        text = re.sub(rf"{key} = \d+", f"{key} = {'nan' if value != value else value}", FILE)
        with pytest.raises(ConfigurationError, match=rf"domains\.beta\.example\.{key}: "):
            federation(text)


def _domains(count: int, types: int = 0) -> str:
    """Return a file with ``count`` foreign domains, the first of which has ``types`` types."""
    head = f'name = "alpha.example"\npublic_key = "{OWN}"\ngateways = {{ a1 = "127.0.0.1:5900" }}\n'
    for number in range(count):
        key = KeyPair(number.to_bytes(16, "big") * 2).public.hex()
        head += f'[domains.d{number}]\npublic_key = "{key}"\ngateways = {{ g = "127.0.0.2:{6000 + number}" }}\n'
        head += f"receive = {[f'T{each}' for each in range(types if number == 0 else 0)]}\n"
    return head


def test_counted_bounds_of_domains_types_and_gateways() -> None:
    assert len(federation(_domains(DOMAINS_MAX, TYPES_MAX)).links_of("a1")) == DOMAINS_MAX
    with pytest.raises(ConfigurationError, match=r"domains: 201 in all are too many \(expected at most 200\)"):
        federation(_domains(DOMAINS_MAX + 1))
    with pytest.raises(ConfigurationError, match="domains: 1001 types in all are too many"):
        federation(_domains(1, TYPES_MAX + 1))
    with pytest.raises(ConfigurationError, match="methods: 1001 types in all are too many"):
        federation(_domains(1, TYPES_MAX) + '[methods]\nOther = "tree"\n')
    gateways = ", ".join(f'g{number} = "127.0.0.1:{7000 + number}"' for number in range(GATEWAYS_MAX + 1))
    with pytest.raises(ConfigurationError, match="gateways: 33 in all are too many"):
        federation(_domains(1).replace('a1 = "127.0.0.1:5900"', gateways))


def test_refusal_of_causal_order_where_it_would_be_lost() -> None:
    asking = FILE.replace("events_per_s_max = 100", "causal = true")
    one = asking.replace('a2 = "[2001:db8::1]:5900"\n', "")
    assert federation(one).causal == ("beta.example",)
    with pytest.raises(
        ConfigurationError, match=r"domains\.beta\.example\.causal: alpha\.example has several gateways"
    ):
        federation(asking)
    for key in ("gives_sessions", "takes_sessions"):
        text = one.replace("causal = true", f"causal = true\n{key} = true")
        with pytest.raises(ConfigurationError, match=r"causal: sessions that move to another domain do not take"):
            federation(text)
    more = "".join(
        f"""
[domains."d{number}.example"]
public_key = "{KeyPair(bytes([number]) * 32).public.hex()}"
gateways = {{ g1 = "192.0.2.{number}:5900" }}
causal = true
"""
        for number in range(20, 20 + PAST_DOMAINS_MAX)
    )
    with pytest.raises(
        ConfigurationError, match=r"domains: 33 with causal = true are too many \(expected at most 31\)"
    ):
        federation(one + more)
