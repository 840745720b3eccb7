"""Resumed iterative runs repeat no finished work."""


async def test_a_run_resumes_where_its_aggregator_ended(
    start_lab, whole_run, iterative_spec, sensitive, worked, tmp_path
):
    message = iterative_spec("es")
    *_, expected = await whole_run(f"sqlite:///{tmp_path}/whole.db", message)
    url = f"sqlite:///{tmp_path}/broken.db"
    async with start_lab(url) as lab:
        created = await lab.create(message)
        worker = sensitive(lab.worker())
        for _ in range(6):  # the base, one update and two candidates of the next
            await worker.report(await worker.claim_next())
        assert (await lab.get(created.id)).progress.updates_done == 1
    async with start_lab(url, broker_url="memory://again") as lab, worked(lab):
        await lab.finish(created.id)
        assert await lab.lineage(created.id) == expected
