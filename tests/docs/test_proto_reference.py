"""The gRPC reference made from the comments in .proto files."""

from pathlib import Path

from scripts.docs_hooks import compile_protos, reference

PROTO = Path(__file__).parents[2] / "proto"
SMALL = """
syntax = "proto3";
package modnorm.v1;

// Says | hello.
service GreetingService {
  // Greets
  // many.
  rpc Greet(Name) returns (stream Greeting);
}

// A name.
message Name {
  // First, then last.
  repeated string parts = 1;
  // Calls by year.
  map<int32, Greeting> calls = 2;
}

// A greeting.
message Greeting {
  // Its tone.
  Tone tone = 1;
  // How it sounds.
  enum Tone {
    // Not set.
    TONE_UNSPECIFIED = 0;
  }
}
"""


def test_comments_types_and_streams_are_in_the_reference(tmp_path):
    (tmp_path / "greeting.proto").write_text(SMALL)
    page = reference(tmp_path)
    assert "### GreetingService\n\nSays | hello.\n" in page
    assert "| `Greet` | Name | stream of Greeting | Greets many. |" in page
    assert "| `parts` | repeated string | First, then last. |" in page
    assert "| `calls` | map from int32 to Greeting | Calls by year. |" in page
    assert "### Greeting.Tone\n\nHow it sounds.\n" in page
    assert "| `TONE_UNSPECIFIED` | 0 | Not set. |" in page


def test_every_service_message_and_enum_of_the_project_is_there():
    page = reference(PROTO)
    files = [file for file in compile_protos(PROTO).file if file.package == "modnorm.v1"]
    for kind in ("service", "message_type", "enum_type"):
        names = [entry.name for file in files for entry in getattr(file, kind)]
        assert names
        assert [name for name in names if f"### {name}\n" not in page] == []
