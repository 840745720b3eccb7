def test_a_token_is_made_listed_and_revoked(modnorm, modnorm_json, tmp_path):
    file = ("--file", tmp_path / "tokens.yaml")
    assert modnorm_json("token", "create", "ci", *file, "--role", "read")["token"]
    assert modnorm_json("token", "revoke", "ci", *file) == {"name": "ci", "state": "revoked"}
    (listed,) = modnorm_json("token", "list", *file)
    assert listed["state"] == "revoked"
    code, out, err = modnorm("token", "revoke", "ci", *file)
    assert (code, out, err) == (0, "", "revoked: ci\n")


def test_a_file_that_cannot_be_written_is_refused_without_the_advice_to_make_it(refusal, tmp_path):
    (tmp_path / "file").touch()
    place = tmp_path / "file" / "tokens.yaml"
    err = refusal("token", "create", "ci", "--file", place, "--role", "read")
    assert err.startswith(f"error: file: cannot write {place}: ")
    assert err.endswith("(name another path, or make it writable)\n")
