"""Parts of an earlier distillation are used again only if they began with equal inputs."""


def test_a_deleted_student_is_trained_again(lab):
    """Nothing removes students, so people do."""
    first = lab.create(rounds=1)
    lab.run(first, until=lambda: lab.is_trained(first))
    lab.world.stores.experiments.cancel(first)
    digest = lab.get(first).rounds[1].part.student_digest
    lab.world.students.require(digest).rmdir()
    second = lab.create("again", rounds=1)
    lab.run(second)
    assert lab.get(second).rounds[1].part.student_digest == digest
    assert lab.world.students.path(digest) is not None
