import pytest

from modnorm.tasks import get_task

TASK = get_task("rocstories")
PUBLISHED = get_task("rocstories", scorer="reference")
STORY = {
    "storyid": "s-1",
    "storytitle": "The lost key",
    **{f"sentence{n}": f"Event {n} happened." for n in range(1, 6)},
}
ROW = TASK.parse(
    {"title": "T", "shuffled_sentences": list("vwxyz"), "gold_order": [1, 3, 4, 0, 2]}
)


def order_of(story):
    """Return the sentences of a parsed story, brought to their order, and that order."""
    row = dict(TASK.parse({**STORY, "storyid": story}))
    order = row["gold_order"]
    assert isinstance(order, list)
    sentences = row["shuffled_sentences"]
    assert isinstance(sentences, list)
    return [sentences[index] for index in order], order


def test_stories_are_shuffled_by_their_id_and_never_left_in_order():
    sentences, order = order_of("s-1")
    assert sentences == [f"Event {n} happened." for n in range(1, 6)]
    assert TASK.parse(STORY) == TASK.parse(TASK.parse(STORY))
    assert order_of("s-1")[1] == order
    orders = [order_of(f"s-{n}")[1] for n in range(300)]
    assert len({tuple(order) for order in orders}) > 80
    assert [0, 1, 2, 3, 4] not in orders


@pytest.mark.parametrize(
    ("order", "score"),
    [
        ("BDEAC", 1.0),
        ("DBEAC", 0.6 * 3 / 5 + 0.4 * 3 / 4),
        ("CAEDB", 0.6 * 1 / 5),
        ("ACBDE", 0.4 * 3 / 4),
    ],
)
def test_the_reward_is_position_and_adjacency(order, score):
    judgement = TASK.judge(ROW, ",".join(order))
    assert judgement.reward == pytest.approx(score)
    assert judgement.vote == order
    assert judgement.correct == (order == "BDEAC")


@pytest.mark.parametrize(
    ("completion", "stated", "published"),
    [
        ("B,A,D,E,C", "BADEC", "BADEC"),
        ("B, A, D, E, C.", "BADEC", "BADEC"),
        ("BADEC", "BADEC", "BADEC"),
        ("B A D E C", "BADEC", "BADEC"),
        ("B -> A -> D -> E -> C", "BADEC", "BADEC"),
        ("b,a,d,e,c", "BADEC", "BADEC"),
        ("1. B\n2. A\n3. D\n4. E\n5. C", "BADEC", "BADEC"),
        ("Sentence B, Sentence A, Sentence D, Sentence E, Sentence C", "BADEC", None),
        ("B, A, D, E, and C", "BADEC", None),
        ("The order for A: B, A, D, E, C", "BADEC", "BADEC"),
        ("A, B,A,D,E,C", "BADEC", None),
        ("A. 1, B. 3, C. 2, D. 5, E. 4", None, "ABCDE"),
        ("A,A,B,C,D", None, None),
        ("A,B,C,D", None, None),
        ("Not A,B,C,D,E but E,D,C,B,A", "EDCBA", "ABCDE"),
        # The published reading takes letters out of words.
        ("The order is B, A, D, E, C", "BADEC", "BADEC"),
        ("A big red dice", None, None),
        ("AB: dce", None, "ABDCE"),
        ("(A) (B) (C) (D) (E)", "ABCDE", "ABCDE"),
        ("", None, None),
    ],
)
def test_orders_are_read(completion, stated, published):
    assert TASK.judge(ROW, completion).vote == stated
    assert PUBLISHED.judge(ROW, completion).vote == published
