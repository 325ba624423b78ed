"""What `mutants` tries: the tests of each room, faults thought of by hand, and why some
live.
"""

PLANNING = (
    "tests/decisions/test_plan_by_hand.py",
    "tests/decisions/test_plan_posed.py",
    "tests/decisions/test_planning_records.py",
)
# By the beginning of a file's path; tests in the order in which they run, fast first.
TESTS: dict[str, tuple[str, ...]] = {
    "bayeslaw/_decisions/check.py": (
        "tests/decisions/test_check_by_hand.py",
        "tests/decisions/test_check_groups.py",
    ),
    "bayeslaw/_decisions/planning/": PLANNING,
    "bayeslaw/_decisions/planning/question.py": (
        *PLANNING,
        "tests/decisions/test_plan_question.py",
    ),
    "bayeslaw/_decisions/planning/plan.py": (
        *PLANNING,
        "tests/decisions/test_plan_question.py",
    ),
    "bayeslaw/_decisions/planning/together.py": ("tests/decisions/test_together.py",),
}
# file, the text that is replaced (once in the file), and what replaces it
NAMED: tuple[tuple[str, str, str], ...] = ()
# by file and change, as the study prints it
REASONS: dict[tuple[str, str], str] = {}
