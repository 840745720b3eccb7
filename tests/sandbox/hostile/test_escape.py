"""Programs that attack the host: network, files, processes, privileges, devices."""

import os
import textwrap
from pathlib import Path

import pytest

from modnorm.sandbox import Verdict

MARK = "FORBIDDEN THING DONE"
FORBIDDEN = {
    "TCP": "import socket; socket.create_connection(('127.0.0.1', {port}), 1)",
    "listening": "import socket; socket.create_server(('0.0.0.0', 0))",
    "UDP": "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM)"
    ".sendto(b'x', ('8.8.8.8', 53))",
    "raw socket": "import socket; socket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
    "netlink": "import socket; socket.socket(socket.AF_NETLINK, socket.SOCK_RAW).bind((0, 0))",
    "reads the secret": "open({secret!r}).read()",
    "reads shadow": "open('/etc/shadow').read()",
    "reads the host's environment": "open('/proc/{pid}/environ').read()",
    "reads the parent's memory": "import os; open(f'/proc/{{os.getppid() or {pid}}}/mem')",
    "lists the host's processes": "import os\n"
    "if '{pid}' not in os.listdir('/proc'): raise OSError",
    "lists home": "import os\nif os.listdir({home!r}) != {at_home!r}: raise OSError",
    "writes outside": "open({directory!r} + '/made', 'w').write('x')",
    "appends outside": "open({public!r}, 'a').write('x')",
    "truncates outside": "import os; os.open({public!r}, os.O_RDONLY | os.O_TRUNC)",
    "removes outside": "import os; os.unlink({public!r})",
    "links outside": "import os; os.link({public!r}, 'mine'); open('mine', 'w').write('x')",
    "symbolic link outside": "import os\nos.symlink({directory!r}, 'out'); open('out/made', 'w')",
    "changes modes": "import os; os.chmod({public!r}, 0)",
    "writes to /tmp": "open('/tmp/modnorm-made', 'w')",
    "writes to shared memory": "open('/dev/shm/modnorm-made', 'w')",
    "writes to the library": "import os; open(os.__file__, 'a')",
    "changes a device": "open('/dev/kmsg', 'w')",
    "signals the host": "import os\nif os.getpid() == {pid}: raise OSError\nos.kill({pid}, 0)",
    "has a file signal the parent": """
        import fcntl, os, socket
        one, _ = socket.socketpair()
        fcntl.fcntl(one, fcntl.F_SETOWN, os.getppid() or {pid})""",
    "chooses the signal of a file": """
        import fcntl, signal, socket
        one, _ = socket.socketpair()
        fcntl.fcntl(one, 10, signal.SIGKILL)""",
    "signals the parent": """
        import os
        if os.getppid() < 1: raise OSError
        os.kill(os.getppid(), 0)
    """,
    "traces the parent": "import ctypes, os\nlibc = ctypes.CDLL(None)\n"
    "if libc.ptrace(16, os.getppid() or {pid}, 0, 0) != 0: raise OSError",
    "reads others by system call": """
        import ctypes
        buffer = ctypes.create_string_buffer(8)
        class V(ctypes.Structure): _fields_ = [('b', ctypes.c_void_p), ('n', ctypes.c_size_t)]
        v = V(ctypes.addressof(buffer), 8)
        libc = ctypes.CDLL(None)
        if libc.process_vm_readv({pid}, ctypes.byref(v), 1, ctypes.byref(v), 1, 0) < 0:
            raise OSError
    """,
    "runs a shell": "import subprocess; subprocess.run(['/bin/sh', '-c', 'true'], check=True)",
    "becomes another program": "import os; os.execv('/bin/true', ['true'])",
    "becomes root": "import os\nif os.getuid() == 0: raise OSError\nos.setuid(0)",
    "mounts": """
        import ctypes
        if ctypes.CDLL(None).mount(b'x', b'.', b'tmpfs', 0, None): raise OSError
    """,
    "new user namespace": """
        import ctypes
        if ctypes.CDLL(None).unshare(0x10000000): raise OSError
    """,
    "raises its limits": "import resource\n"
    "resource.setrlimit(resource.RLIMIT_CPU, (10**6, 10**6))",
    "fills the disk": """
        for at in range(64):
            with open(f'large{{at}}', 'wb') as file: file.write(bytes(2**18))
    """,
    "makes files without end": """
        for at in range(100000): open(f'small{{at}}', 'w').close()
    """,
    "opens files without end": "files = [open('/dev/null') for _ in range(1000)]",
    "reads credentials of the environment": "import os\n"
    "if not any('TOKEN' in k or 'PYTEST' in k for k in os.environ): raise KeyError",
    "memory file": "import os\nfd = os.memfd_create('x')\nos.write(fd, bytes(2**26))",
    "leaves a child": """
        import os
        if os.fork() == 0:
            os.setsid()
            while True: pass
        os._exit(0)
    """,
}


@pytest.mark.parametrize("source", FORBIDDEN.values(), ids=FORBIDDEN)
def test_forbidden_acts_fail(attack, source, tmp_path_factory, listener):
    directory = tmp_path_factory.mktemp("bait")
    (directory / "secret").write_text("secret")
    (directory / "secret").chmod(0o600)
    (directory / "public").write_text("public")
    (directory / "public").chmod(0o666)
    directory.chmod(0o777)
    attempt = textwrap.dedent(source).format(
        directory=str(directory),
        secret=str(directory / "secret"),
        public=str(directory / "public"),
        home=str(Path.home()),
        at_home=[path.name for path in Path.home().iterdir()],
        pid=os.getpid(),
        port=listener,
    )
    outcome = attack(f"{attempt}\nprint({MARK!r}, flush=True)")
    assert outcome.verdict is Verdict.FAILED
    assert MARK not in outcome.printed
    assert sorted(path.name for path in directory.iterdir()) == ["public", "secret"]
    assert (directory / "public").read_text() == "public"
    assert (directory / "public").stat().st_mode & 0o777 == 0o666
    assert not Path("/tmp/modnorm-made").exists()
    assert not Path("/dev/shm/modnorm-made").exists()
