def test_a_token_is_made_listed_and_revoked(modnorm, modnorm_json, tmp_path):
    file = ("--file", tmp_path / "tokens.yaml")
    assert modnorm_json("token", "create", "ci", *file, "--role", "read")["token"]
    assert modnorm_json("token", "revoke", "ci", *file) == {"name": "ci", "state": "revoked"}
    (listed,) = modnorm_json("token", "list", *file)
    assert listed["state"] == "revoked"
    code, out, err = modnorm("token", "revoke", "ci", *file)
    assert (code, out, err) == (0, "", "revoked: ci\n")
