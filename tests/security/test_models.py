"""Code in a model's folder is never run."""

import json
import pickle
import shutil

import pytest
import torch

from modnorm.checkpoint.pretrained import load_pretrained
from modnorm.checkpoint.prompts import PromptEncoder
from modnorm.checkpoint.reference import resolve_checkpoint
from modnorm.errors import InvalidInputError
from modnorm.tasks import Message
from tests.faults import error_at


class Payload:
    """Writes a file when it is unpickled."""

    def __init__(self, trap):
        self.trap = trap

    def __reduce__(self):
        return type(self.trap).touch, (self.trap,)


@pytest.fixture
def trap(tmp_path):
    return tmp_path / "trap"


@pytest.fixture
def model(tmp_path):
    """A copy of the bundled model for changes."""
    folder = tmp_path / "model"
    shutil.copytree(resolve_checkpoint("tiny-thicket").directory, folder)
    return folder


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "consolidated.pth"])
def test_pickled_weights_are_no_weights(model, trap, name):
    (model / "model.safetensors").unlink()
    with (model / name).open("wb") as file:
        torch.save({"weight": Payload(trap)}, file)
    with pytest.raises(InvalidInputError, match="safetensors"):
        resolve_checkpoint(str(model))
    assert not trap.exists()


def test_a_pickle_in_place_of_safetensors_is_not_unpickled(model, trap, lab, client, spec, stored):
    (model / "model.safetensors").write_bytes(pickle.dumps(Payload(trap)))
    shutil.copytree(model, lab.folder / "models" / "pickled")
    before = stored()
    with error_at("model.name"):
        client("submit").submit(spec(model={"name": f"{lab.folder}/models/pickled"}))
    assert not trap.exists()
    assert stored() == before


def test_a_model_that_needs_its_own_code_is_refused(model):
    classes = {"AutoConfig": "code.Config", "AutoModelForCausalLM": "code.Model"}
    change(model / "config.json", auto_map=classes)
    with pytest.raises(InvalidInputError, match="auto_map"):
        resolve_checkpoint(str(model))


def test_code_beside_a_model_is_not_run(model, trap):
    (model / "code.py").write_text(
        f"import pathlib\npathlib.Path({str(trap)!r}).touch()\n"
        "from transformers import PreTrainedTokenizerFast as Tokenizer\n"
    )
    tokenizer = {"AutoTokenizer": ["code.Tokenizer", "code.Tokenizer"]}
    change(model / "tokenizer_config.json", auto_map=tokenizer)
    checkpoint = resolve_checkpoint(str(model))
    load_pretrained(checkpoint, dtype=torch.float32, attention="eager")
    assert PromptEncoder(checkpoint).encode([Message("user", "a question")])
    assert not trap.exists()


def test_a_template_reaches_no_python(model, trap):
    (model / "chat_template.jinja").write_text(
        "{{ ''.__class__.__mro__[1].__subclasses__() }}"
        f"{{{{ cycler.__init__.__globals__.os.system('touch {trap}') }}}}"
    )
    encoder = PromptEncoder(resolve_checkpoint(str(model)))
    with pytest.raises(InvalidInputError, match="template"):
        encoder.encode([Message("user", "a question")])
    assert not trap.exists()


def change(path, **fields):
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))
