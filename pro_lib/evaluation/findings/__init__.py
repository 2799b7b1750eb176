"""The sentences under the figures: what a tidy table shows, and what it does not show.

Every function takes a table of `pro_lib.evaluation.tables` and returns Markdown. The rules are the
same for all of them:

- Two methods are compared by the paired difference of their AUROCs on the same questions, never by
  two separate intervals.
- A setting is a dataset and a model. Whether a difference is significant is decided for all
  settings together (Holm's correction, 5 %), and for each protocol by itself, because protocols are
  two views of the same answers and not further settings.
- A difference that is not significant was not shown. It is not called equal; the text says how
  large an effect these questions would have detected.
- Settings with fewer than 20 correct or 20 wrong answers are left out, and the text says so.
"""

from pro_lib.evaluation.findings.statements import by_protocol, comparison, signed_span, span

__all__ = ["by_protocol", "comparison", "signed_span", "span"]
