"""A finished run's ensemble, served as a new user would."""

import json
import os
import signal

import openai

from modnorm import load_run
from verification.labs.fork_server import Launch
from verification.labs.waiting import wait_until


def test_the_server_answers_held_out_questions_with_the_votes_of_the_run(
    forks, environment, finished, tmp_path
):
    out, err = tmp_path / "stdout", tmp_path / "stderr"
    launch = Launch(
        "modnorm",
        environment,
        log=str(err),
        arguments=["serve", str(finished), "--k", "2", "--port", "0", "--json"],
        folder=os.getcwd(),  # noqa: PTH109 - tests change it
        output=str(out),
        ended=str(tmp_path / "ended"),
    )
    process = forks.launch(launch)
    try:
        wait_until(
            lambda: not process.alive or (out.exists() and out.read_text().endswith("}\n")),
            "the server told its address",
        )
        announced = json.loads(out.read_text())
        assert announced["models"] == ["ensemble", "expert-1", "expert-2"]
        run = load_run(finished)
        ensemble = run.ensemble(4, 2)
        with openai.OpenAI(base_url=announced["url"], api_key="none") as client:
            for row, vote in zip(run.rows("heldout")[:3], run.votes(None, 4, 2), strict=False):
                answer = client.chat.completions.create(
                    model="ensemble", messages=[], extra_body={"row": json.loads(row)}
                )
                voted = json.loads(answer.to_json())["modnorm"]
                assert voted["answer"] == vote.answer
                assert voted["experts"][0]["expert"] == ensemble.experts[0]
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 0
    finally:
        process.kill()
