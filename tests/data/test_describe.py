import truelike as tl
from truelike.data.describe import describe, table_1

DATA = tl.read(
    [(user, item, 1, 100 + user) for user in range(10) for item in range(user + 1)] + [(0, 0, 1, 50)],
    name="stairs",
)


def test_table_1_counts_pairs_not_rows() -> None:
    assert table_1(DATA) == {
        "Dataset": "stairs",
        "Interactions": "55",
        "Users": "10",
        "Items": "10",
        "Sparsity": "45.0000%",
    }


def test_the_facts_about_a_dataset_are_right() -> None:
    assert dict(describe(DATA).rows()) == {
        "repeated rows": "1",
        "items per user (least, median, mean, most)": "1, 6, 5.5, 10",
        "users per item (least, median, mean, most)": "1, 6, 5.5, 10",
        "users with one item": "1 (10.0%)",
        "items with one user": "1 (10.0%)",
        "items that make up half of the interactions": "4 (40.0%)",  # 10 + 9 + 8 + 7 = 34 of 55; three make 27
        "share of interactions of the top 1% of items": "18.2%",
        "share of interactions of the top 20% of items": "34.5%",
        "Gini index of item popularity": "0.300",  # (n - 1) / (3 n) for 1, ..., n
        "times": "100 to 109",
    }


def test_a_dataset_where_all_items_are_alike_has_no_inequality() -> None:
    facts = dict(describe(tl.read([(user, item) for user in range(4) for item in range(5)])).rows())
    assert facts["Gini index of item popularity"] == "0.000"
    assert facts["times"] == "none"
