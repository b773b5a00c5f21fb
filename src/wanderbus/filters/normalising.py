"""Conversion of a tree to its normal form (DESIGN 7.2, SPEC A-14, B-09).

The form holds exactly where the tree is *true*. `not` is pushed inwards to where it is exact: "no item fits a clause"
becomes "all items fail it". This is stricter than "they do not fit it", and both need the attribute.

A normal form may be exponentially larger than its tree. A subtree that would exceed a bound of :mod:`wanderbus.limits`
stays in the form as it was: exact when evaluated, opaque to covering. If the work exceeds its bound, the whole filter
stays as it was. So no filter is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from wanderbus import limits
from wanderbus.filters import clauses
from wanderbus.filters.ast import And, Exists, Node, Not, Or, Quantified, Quantifier, Residual, Rooted
from wanderbus.filters.clauses import TooLarge
from wanderbus.filters.conjunctions import attribute_filter, both, conjunction, uncovered
from wanderbus.filters.normal import AttributeFilter, Conjunction, NormalForm
from wanderbus.filters.unfolding import to_node
from wanderbus.work import UNCOUNTED, WorkBudget, WorkExceeded

__all__ = ["normal_form", "to_node", "tree_of"]

_OTHER: Final[dict[Quantifier, Quantifier]] = {"any": "all", "all": "any"}
_NODE: Final = 100
"""Units of one node."""

_CHARACTER: Final = 4
"""Units of writing a character of a residual."""

_MADE_EACH: Final = 8
"""Intermediate conjunctions per conjunction that a normal form may have."""


def normal_form(
    of: Node | Rooted,
    conjunctions_max: int = limits.NORMAL_FORM_CONJUNCTIONS_MAX,
    work: WorkBudget = UNCOUNTED,
) -> NormalForm:
    """Return conjunctions of which one holds exactly where ``of``, a filter or its tree, is true.

    Conjunctions that another one covers are left out, and so are implied filters within each. A subtree that would make
    more than ``conjunctions_max`` of them stays in the form as it was, and so does all of ``of`` if the form takes more
    than :data:`wanderbus.limits.NORMAL_FORM_WORK_MAX` units, or than are left of ``work``, to which they are added.
    """
    root = tree_of(of)
    own = WorkBudget(min(limits.NORMAL_FORM_WORK_MAX, work.left), "NORMAL_FORM_WORK_MAX")
    try:
        form = _ordered(uncovered(_Expansion(conjunctions_max, own).form(root, wanted=True), own), own)
    except WorkExceeded:
        form = unexpanded(root)
    work.done += min(own.done, limits.NORMAL_FORM_WORK_MAX)
    return form


def unexpanded(root: Node) -> NormalForm:
    """Return the form of the filter with this tree that nothing is known of: it is evaluated, and equals itself."""
    return (Conjunction((), (root,)),)


def tree_of(of: Node | Rooted) -> Node:
    """Return the tree of a filter; a tree is returned as it is."""
    match of:
        case Quantified() | Exists() | Residual() | Not() | And() | Or():
            return of
        case _:
            return of.root


class _Expansion:
    """The construction of one normal form."""

    def __init__(self, conjunctions_max: int, work: WorkBudget) -> None:
        self._most = conjunctions_max
        self._work = work
        self._made = 0
        self._opaque: dict[Node, Node] = {}

    def form(self, node: Node, wanted: bool) -> NormalForm:
        """Return where ``node`` is true, or with ``wanted`` False where it is false."""
        self._work.spend(_NODE)
        match node:
            case Quantified():
                return self._of_quantified(node, wanted)
            case Exists(attribute=attribute):
                return (Conjunction((AttributeFilter(attribute, "exists" if wanted else "absent"),)),)
            case Residual():
                return self._unexpanded(node, wanted)
            case Not(operand=operand):
                return self.form(operand, not wanted)
            case And(operands=operands) if wanted:
                return self._every(operands, wanted)
            case Or(operands=operands) if not wanted:
                return self._every(operands, wanted)
            case And(operands=operands) | Or(operands=operands):
                return self._some(operands, wanted)

    def _of_quantified(self, node: Quantified, wanted: bool) -> NormalForm:
        try:
            terms = clauses.terms_of(node.clause, wanted, self._work)
        except TooLarge:
            return self._unexpanded(node, wanted)
        quantifier = node.quantifier if wanted else _OTHER[node.quantifier]
        if quantifier == "any" and not terms:
            return ()
        return (Conjunction((attribute_filter(node.attribute, quantifier, terms),)),)

    def _unexpanded(self, node: Node, wanted: bool) -> NormalForm:
        """Return ``node`` as a residual; equal residuals are the same object."""
        node = self._opaque.setdefault(node, node)
        if not wanted:
            node = self._opaque.setdefault(Not(node), Not(node))
        return (Conjunction((), (node,)),)

    def _every(self, operands: Sequence[Node], wanted: bool) -> NormalForm:
        filters: list[AttributeFilter] = []
        residuals: list[Node] = []
        wide: list[tuple[NormalForm, Node]] = []
        for operand in operands:
            match self.form(operand, wanted):
                case ():
                    return ()
                case (only,):
                    filters += only.filters
                    residuals += only.residuals
                case several:
                    wide.append((several, operand))
        first = conjunction(filters, residuals, self._work)
        found: NormalForm = () if first is None else (first,)
        # The small ones first, so that as few as possible stay unexpanded.
        left: list[Node] = []
        for several, operand in sorted(wide, key=lambda part: len(part[0])):
            made = len(found) * len(several)
            if made > self._most or self._made + made > _MADE_EACH * self._most:
                left += self._unexpanded(operand, wanted)[0].residuals
            else:
                self._made += made
                found = uncovered(self._product(found, several), self._work)
        return self._product(found, (Conjunction((), tuple(left)),)) if left else found

    def _some(self, operands: Sequence[Node], wanted: bool) -> NormalForm:
        forms = [(self.form(operand, wanted), operand) for operand in operands]
        found = self._united([each for form, _ in forms for each in form])
        if len(found) <= self._most:
            return found
        room = self._most - 1
        kept: list[Conjunction] = []
        left: list[Node] = []
        for form, operand in sorted(forms, key=lambda part: len(part[0])):
            if len(kept) + len(form) <= room:
                kept += form
            else:
                left.append(operand if wanted else Not(operand))
        return self._united([*kept, *self._unexpanded(Or(tuple(left)), wanted=True)])

    def _product(self, one: NormalForm, other: NormalForm) -> NormalForm:
        pairs = (both(mine, its, self._work) for mine in one for its in other)
        return tuple(each for each in pairs if each is not None)

    def _united(self, conjunctions: Sequence[Conjunction]) -> NormalForm:
        """Remove duplicates, and unite conjunctions that consist of one ``any`` filter of the same attribute."""
        self._work.spend(_NODE * len(conjunctions))
        if Conjunction() in conjunctions:
            return (Conjunction(),)
        lone: dict[str, list[Conjunction]] = {}
        found: dict[object, Conjunction] = {}
        for each in conjunctions:
            if not each.residuals and len(each.filters) == 1 and each.filters[0].quantifier == "any":
                lone.setdefault(each.filters[0].attribute, []).append(each)
            found[_identity(each)] = each
        for attribute, several in lone.items():
            if len(several) > 1:
                try:
                    terms = clauses.union((each.filters[0].terms for each in several), self._work)
                except TooLarge:
                    continue
                for each in several[1:]:
                    found.pop(_identity(each), None)
                found[_identity(several[0])] = Conjunction((attribute_filter(attribute, "any", terms),))
        return tuple(found.values())


def _identity(conjunction: Conjunction) -> object:
    return conjunction.filters, tuple(map(id, conjunction.residuals))


def _ordered(form: NormalForm, work: WorkBudget) -> NormalForm:
    """Return ``form`` with the residuals of each conjunction in an order that is the same in every process."""
    if all(len(each.residuals) < 2 for each in form):
        return form
    distinct = {id(node): node for each in form for node in each.residuals}
    texts = {}
    for identity, node in distinct.items():
        texts[identity] = repr(node)
        work.spend(_CHARACTER * len(texts[identity]))
    return tuple(
        [Conjunction(each.filters, tuple(sorted(each.residuals, key=lambda node: texts[id(node)]))) for each in form]
    )
