"""Owner of a user's session among the access servers of a domain: where a new call is served (SPEC J-01, L-06).

::

    signalling ──OwnerWanted──▶ ┌───────────────┐ ──▶ questions and answers on links
    signalling ◀─CallServed──── │ SessionOwners │ ◀── messages, links open and close
               ◀─CallRedirected └───────────────┘
               ◀─CallPostponed

A server owns a user's session if it has subscriptions of the user in it, or notifications that wait. It serves the
calls for this session. If it has given the session up, and knows where the next owner is called, it redirects the call
there. For any other session it asks all servers with a link, and redirects the call to the first one that says that it
is the owner. It also asks before it redirects a call to another domain: the session may have come back from there to
another server. A session that nobody owns begins at a server that owns another session of the user:
here, or else where one is; without one, here. Nothing is stored: each owner answers from its own state, so an answer is
never stale, and a server that is down is no owner.

A call that comes back after its redirection is served: the caller could not reach the owner. A caller who has
subscriptions at a server that does not answer is to call again for a while: that server may be about to come back.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Final, Protocol

from wanderbus.broker.state.rows import AwaitedRow, SessionRow, session_key, session_of
from wanderbus.errors import RemoteProtocolError, SIPParseError
from wanderbus.hosts import domain_of
from wanderbus.machine import CancelTimer, Input, Output, SetTimer, TimerFired
from wanderbus.peers.far_servers import FarServerMet
from wanderbus.peers.handover.placement import server_for
from wanderbus.peers.messages import (
    CloseServerLink,
    ConnectServer,
    SendOnServerLink,
    ServerLinkClosed,
    ServerLinkOpened,
    ServerMessageReceived,
)
from wanderbus.peers.open_links import OpenLinks
from wanderbus.peers.owner_messages import (
    CallPostponed,
    CallRedirected,
    CallServed,
    Message,
    OwnerAnswered,
    OwnerAsked,
    OwnersOutput,
    OwnerWanted,
    decode,
    encode,
)
from wanderbus.sip.message.uri import SIPUri

ANSWER_S: Final = 0.5
"""Timeout of a question. The proxy waits 2 s for the answer to an INVITE, and an agent 4 s."""

FIRST_LINKS_S: Final = 5.0
"""Time after the start in which a question also waits for servers that had no link yet."""

LOOK_S: Final = 0.01
"""Pause until a call looks again whether the session of its user has arrived at its next owner."""

QUESTIONS_MAX: Final = 1_024
"""Largest number of calls that wait for answers; a further one is served here."""

RETURN_S: Final = 32.0
"""Time for which a redirected call is remembered: that of timer B, in which an INVITE to the owner times out."""

POSTPONED_S: Final = 5.0
"""Time for which the calls of a device whose server cannot be reached are postponed, before another one serves it."""

OUTAGE_S: Final = 60.0
"""Time after which such a call belongs to another outage."""

REDIRECTED_MAX: Final = 4_096
"""Largest number of redirected calls, and of postponed sessions, that are remembered; the oldest is forgotten first."""


class SessionsByUser(Protocol):
    """The sessions of a server by user."""

    server: str

    @property
    def is_draining(self) -> bool:
        """Return whether new sessions begin at other servers."""
        ...

    @property
    def awaited(self) -> Mapping[str, AwaitedRow]:
        """Return the sessions that are on their way here, by key."""
        ...

    @property
    def exports(self) -> Container[str]:
        """Return the keys of the sessions that have left, and that their next owner may not have yet."""
        ...

    def sessions_of(self, user: str) -> Sequence[SessionRow]:
        """Return the sessions of a user."""
        ...

    def has_published(self, user: str, device: str) -> bool:
        """Return whether a device has published to decentralised channels here."""
        ...


def owns(server: SessionsByUser, user: str, session: str = "") -> bool:
    """Return whether a server has subscriptions of ``user``, or notifications that wait, or a session that moved there.

    So it does if it alone recognises what a device of the user has published (decision 0149).

    While a session is on its way to another server, it is still here: it has to be nowhere else.
    """
    return any(
        each.key in server.exports
        if each.is_fenced
        else bool(each.subscriptions or each.waiting or each.owner_epoch > 1)
        or any(server.has_published(user, device) for device in each.devices)
        for each in _sessions(server, user, session)
    )


def leaves(server: SessionsByUser, user: str, session: str = "") -> bool:
    """Return whether a session of ``user`` has left a server, and is not at its next owner yet."""
    return any(each.is_fenced and each.key in server.exports for each in _sessions(server, user, session))


def next_owner(server: SessionsByUser, user: str, session: str = "") -> tuple[int, str]:
    """Return epoch and name of the server that has a session of ``user`` after this one, or that awaits it.

    (0, "") if there is none.
    """
    owners = [(each.owner_epoch, each.next_owner) for each in _sessions(server, user, session) if each.next_owner]
    awaited = [
        (row.owner_epoch, server.server)
        for key, row in server.awaited.items()
        if key == session_key(user, session) or (not session and session_of(key)[0] == user)
    ]
    return max([*owners, *awaited], default=(0, ""))


def _sessions(server: SessionsByUser, user: str, session: str) -> list[SessionRow]:
    """Return one session of a user, or all if no name is given."""
    return [each for each in server.sessions_of(user) if session in ("", each.name)]


class _Question:
    """A call that waits for the answers of the servers in ``unanswered``."""

    def __init__(self, wanted: OwnerWanted, unanswered: set[str], next_owner: tuple[int, str]) -> None:
        self.wanted = wanted
        self.former = wanted.former
        self.unanswered = unanswered
        self.other: tuple[str, ...] = ()
        """Contacts of a server with another session of the user."""
        self.next_owner = next_owner
        """The latest owner that a server has named, behind its epoch; "" if none has."""
        self.asked_again: tuple[int, str] = 0, ""
        """The one that was asked once more, because it may have answered before the session came."""
        self.is_coming = False
        """True if it says that the session is on its way to it."""
        self.takers: dict[str, tuple[str, ...]] = {}
        """Contacts of the servers that take new sessions."""


class SessionOwners:
    """Decides where new calls are served, and answers the questions of other servers; ``step`` as in every machine.

    :param others: the names of the other servers of the domain
    :param sessions: the sessions of this server
    :param contacts: SIP URIs at which the other servers' callers reach this one
    :param takes: whether new sessions may begin here, unless this server drains
    :param fetches: returns whether the session of a user comes from the user's own domain, of which somebody else takes
        care, also if it has been here before
    """

    def __init__(
        self,
        others: Iterable[str],
        sessions: SessionsByUser,
        contacts: tuple[str, ...],
        *,
        takes: bool = True,
        fetches: Callable[[str], bool] = lambda user: False,
    ) -> None:
        self._others = tuple(others)
        self._sessions = sessions
        self._contacts = contacts
        self._takes = takes
        self._fetches = fetches
        self._links = OpenLinks()
        self._unseen = set(self._others)
        """Servers without a link since the start."""
        self._unseen_until = 0.0
        self._questions: dict[int, _Question] = {}
        self._requests: dict[str, int] = {}
        """Number of the question of each call that is not decided."""
        self._last_request = 0
        self._contacts_of: dict[str, tuple[str, ...]] = {}
        """Contacts of the servers with a link that have given them in an answer."""
        self._held: dict[str, tuple[OwnerWanted, float]] = {}
        """Each call that waits until the session is at its next owner, and until when it waits."""
        self._redirected: dict[str, float] = {}
        """Redirected calls, and the second until which each is remembered; the oldest is first."""
        self._postponed: dict[tuple[str, str], float] = {}
        """Sessions whose server cannot be reached, and the second of the first postponed call; the oldest is first."""
        self._outputs: list[OwnersOutput] = []

    def start(self, now: float) -> list[ConnectServer]:
        """Begin a life of the server; return the requests for links to all other servers."""
        self._unseen_until = now + FIRST_LINKS_S
        return [ConnectServer(server) for server in self._others]

    def step(self, inputs: Iterable[Input | Output], now: float) -> list[OwnersOutput]:
        """Take a batch of inputs at monotonic second ``now``; return the outputs in order."""
        for given in inputs:
            match given:
                case OwnerWanted():
                    self._on_wanted(given, now)
                case ServerMessageReceived():
                    self._on_message(given, now)
                case FarServerMet(server=server, contacts=contacts):
                    self._contacts_of[server] = tuple(str(SIPUri.parse(each)) for each in contacts)
                case ServerLinkOpened(link=link, server=server):
                    self._on_link_opened(link, server)
                case ServerLinkClosed(link=link, server=server):
                    self._on_link_closed(link, server, now)
                case TimerFired(key=str(call)):
                    self._look_again(call, now)
                case TimerFired(key=("again", int(request))):
                    if question := self._questions.get(request):
                        self._ask(question.next_owner[1], request, question)
                case TimerFired(key=int(request)):
                    if question := self._questions.get(request):
                        self._decide(question, now)
        outputs, self._outputs = self._outputs, []
        return outputs

    def owns(self, user: str) -> bool:
        """Return whether this server has subscriptions of ``user``, or notifications that wait."""
        return owns(self._sessions, user)

    def _on_wanted(self, wanted: OwnerWanted, now: float) -> None:
        call, user, session = wanted.call, wanted.user, wanted.session
        if call in self._requests or call in self._held:
            return
        has_returned = self._redirected.pop(call, now) > now
        asked = set(self._links.servers) | (self._unseen if now < self._unseen_until else set())
        if leaves(self._sessions, user, session) and len(self._held) < QUESTIONS_MAX:
            self._held[call] = wanted, now + ANSWER_S
            self._outputs.append(SetTimer(call, now + LOOK_S))
            return
        if has_returned or len(self._questions) >= QUESTIONS_MAX or self._has(user, session):
            self._outputs.append(CallServed(call))
            return
        after = next_owner(self._sessions, user, session)
        if not asked and "/" in after[1]:
            self._send_away(wanted, after[1], now)
            return
        if not asked:
            self._serve(CallServed(call), user, session, wanted.former, now)
            return
        if session and "/" not in after[1] and (contacts := self._contacts_of.get(after[1])):
            self._redirect(call, contacts, now)  # that server redirects it again if it has given the session up
            return
        self._last_request += 1
        request = self._requests[call] = self._last_request
        question = self._questions[request] = _Question(wanted, asked, after)
        self._outputs.append(SetTimer(request, now + ANSWER_S))
        for server in sorted(asked & self._links.servers):
            self._ask(server, request, question)

    def _send_away(self, wanted: OwnerWanted, owner: str, now: float) -> None:
        """Redirect a call for a session that has left for another domain, to the server ``owner`` there.

        One of a visitor is for another one to decide, unless the device only follows its session home.
        """
        is_at_home = owner.partition("/")[0] == domain_of(wanted.user)
        if is_at_home and self._fetches(wanted.user) and not wanted.follows:
            self._outputs.append(CallServed(wanted.call))
        elif contacts := self._contacts_of.get(owner):
            self._redirect(wanted.call, contacts, now)
        else:
            self._outputs.append(CallPostponed(wanted.call, owner))

    def _has(self, user: str, session: str) -> bool:
        """Return whether a session is here, or all sessions of the user are.

        One without subscriptions may also be at another server, unless this one owns a further session of the user.
        """
        is_here = any(not each.is_fenced for each in _sessions(self._sessions, user, session))
        return owns(self._sessions, user, session) or (is_here and self.owns(user))

    def _look_again(self, call: str, now: float) -> None:
        """Decide a call for a session that has left; serve it if the session takes too long."""
        wanted, until = self._held[call]
        if not leaves(self._sessions, wanted.user, wanted.session):
            del self._held[call]
            self._on_wanted(wanted, now)
        elif now < until:
            self._outputs.append(SetTimer(call, now + LOOK_S))
        else:
            del self._held[call]
            self._outputs.append(CallServed(call))

    def _on_message(self, received: ServerMessageReceived, now: float) -> None:
        server = received.server
        try:
            match decode(received.payload):
                case OwnerAsked() as asked:
                    self._outputs.append(SendOnServerLink(received.link, encode(self._answer(asked))))
                case OwnerAnswered(request=request) as answer:
                    if question := self._questions.get(request):
                        self._on_answer(question, server, answer, now)
        except (RemoteProtocolError, SIPParseError) as error:
            self._outputs.append(CloseServerLink(received.link, f"{server}: {error}"))

    def _answer(self, asked: OwnerAsked) -> OwnerAnswered:
        sessions, user = self._sessions, asked.user
        epoch, after = next_owner(sessions, user, asked.session)
        has_left = "/" in after
        contacts = self._contacts if self.owns(user) or has_left else ()
        takes_at = self._contacts if self._takes and not sessions.is_draining else ()
        is_exact = has_left or owns(sessions, user, asked.session)
        return OwnerAnswered(asked.request, contacts, after, epoch, takes_at, is_exact)

    def _on_answer(self, question: _Question, server: str, answer: OwnerAnswered, now: float) -> None:
        contacts, takes_at = (
            tuple(str(SIPUri.parse(each)) for each in uris) for uris in (answer.contacts, answer.takes_at)
        )
        if known := contacts or takes_at:
            self._contacts_of[server] = known
        if server == question.former:
            question.former = ""  # it has not the session
        has_left = "/" in answer.next_owner
        is_late = has_left and answer.owner_epoch <= question.next_owner[0]
        if contacts and (answer.is_exact or not question.wanted.session) and not is_late:
            self._close(question.wanted.call)
            self._redirect(question.wanted.call, contacts, now)
            return
        if takes_at:
            question.takers[server] = takes_at
            question.other = question.other or (() if has_left else contacts)
        question.next_owner = max(question.next_owner, (answer.owner_epoch, answer.next_owner))
        if server == question.next_owner[1]:
            question.is_coming = answer.next_owner == server
        self._strike(question, server, now)

    def _redirect(self, call: str, contacts: tuple[str, ...], now: float) -> None:
        self._remember(call, now)
        self._outputs.append(CallRedirected(call, contacts))

    def _on_link_opened(self, link: int, server: str) -> None:
        """Repeat the questions without an answer: a link that failed may have lost them."""
        self._links.opened(link, server)
        self._unseen.discard(server)
        for request, question in self._questions.items():
            if server in question.unanswered:
                self._ask(server, request, question)

    def _on_link_closed(self, link: int, server: str, now: float) -> None:
        """Expect no answer of a server without a link."""
        if not self._links.closed(link, server):
            return
        self._contacts_of.pop(server, None)
        for question in list(self._questions.values()):
            self._strike(question, server, now)

    def _strike(self, question: _Question, server: str, now: float) -> None:
        """Expect no answer of ``server`` any more; the last one decides.

        The next owner by the last word of a former one may have answered before the session came: it is asked again.
        """
        question.unanswered.discard(server)
        if question.unanswered:
            return
        _, owner = question.next_owner
        is_open = question.is_coming or question.asked_again != question.next_owner
        if is_open and owner in self._links.servers:
            question.unanswered.add(owner)
            question.asked_again = question.next_owner
            self._outputs.append(SetTimer(("again", self._requests[question.wanted.call]), now + LOOK_S))
        else:
            self._decide(question, now, is_certain=self._links.servers.issuperset(self._others))

    def _decide(self, question: _Question, now: float, *, is_certain: bool = False) -> None:
        """Decide a call for a session that nobody owns: it begins where another one of the user is, or here.

        While this server drains, it begins elsewhere.
        """
        self._close(question.wanted.call)
        _, owner = question.next_owner
        if "/" in owner:
            self._send_away(question.wanted, owner, now)
            return
        drains = self._sessions.is_draining
        taker = server_for(question.wanted.user, question.takers) if drains else None
        if question.other and (drains or not self.owns(question.wanted.user)):
            self._redirect(question.wanted.call, question.other, now)
        elif taker is not None:
            self._redirect(question.wanted.call, question.takers[taker], now)
        else:
            unowned = question.wanted.user if is_certain else ""
            served = CallServed(question.wanted.call, unowned, question.wanted.session if unowned else "")
            self._serve(served, question.wanted.user, question.wanted.session, question.former, now)

    def _serve(self, served: CallServed, user: str, session: str, former: str, now: float) -> None:
        """Serve a call here, or postpone it while the server ``former``, which has the session, may come back."""
        if former not in self._others:
            self._outputs.append(served)
            return
        since = self._postponed.pop((user, session), now)
        if now - since > OUTAGE_S:
            since = now
        if len(self._postponed) >= REDIRECTED_MAX:
            del self._postponed[next(iter(self._postponed))]
        self._postponed[user, session] = since
        self._outputs.append(CallPostponed(served.call, former) if now - since < POSTPONED_S else served)

    def _close(self, call: str) -> None:
        """Forget the question about a call."""
        request = self._requests.pop(call)
        del self._questions[request]
        self._outputs.append(CancelTimer(request))

    def _remember(self, call: str, now: float) -> None:
        while self._redirected and (
            len(self._redirected) >= REDIRECTED_MAX or next(iter(self._redirected.values())) <= now
        ):
            del self._redirected[next(iter(self._redirected))]
        self._redirected[call] = now + RETURN_S

    def _ask(self, server: str, request: int, question: _Question) -> None:
        self._send(server, OwnerAsked(request, question.wanted.user, question.wanted.session))

    def _send(self, server: str, message: Message) -> None:
        self._links.send(server, encode(message), self._outputs.append)
