"""A program that requests its notifications in XML (SPEC O-03)."""

from __future__ import annotations

from tests.api.world import SUBJECT, World, run, take
from tests.filters.xml_schema import is_valid
from wanderbus.filters import xml


def test_o03_an_application_reads_xml_beside_the_event(world: World) -> None:
    async def story() -> None:
        async with (
            world.server(),
            world.agent() as alice,
            alice.subscribe(SUBJECT, "n > 1", format="xml") as in_xml,
            alice.subscribe(SUBJECT) as plain,
        ):
            large = {"text": "\x00" * 20_000}
            for n in (1, 2):
                await alice.publish(SUBJECT, {"n": n})
            await alice.publish(SUBJECT, {"n": 3, **large})
            small, great = await take(in_xml, 2)
            for notification in (small, great):
                assert notification.xml is not None
                assert is_valid(notification.xml)
                read = xml.read_notification(notification.xml)
                assert read.event == notification.event
                assert (read.position, read.id) == (notification.position, notification.id)
            assert [each.xml for each in await take(plain, 3)] == [None] * 3
            formats = {each.id: each.format for each in await alice.subscriptions()}
            assert formats == {in_xml.subscription.id: "xml", plain.subscription.id: "event"}

    run(story())
