"""permessage-deflate within bounds: what a message takes is what was sent, until it is whole and while it is
taken in.

The library inflates fragment by fragment, so a message that is never finished holds what it inflates to: a
thousand times what was sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from websockets.exceptions import PayloadTooBig
from websockets.extensions.permessage_deflate import PerMessageDeflate, ServerPerMessageDeflateFactory
from websockets.frames import CTRL_OPCODES, Frame, Opcode
from websockets.typing import ExtensionParameter


class WholeMessageDeflate(PerMessageDeflate):
    """Keeps the fragments of a compressed message as they came and inflates them when the last is there."""

    _compressed = False
    _fragments = bytearray()

    @property
    def waiting(self) -> int:
        """Bytes of an unfinished message that are kept."""
        return len(self._fragments)

    def forget(self) -> None:
        """They are not wanted any more."""
        self._fragments = bytearray()

    def decode(self, frame: Frame, *, max_size: int | None = None) -> Frame:
        """The message in its last fragment; the others become empty. Raises PayloadTooBig."""
        if frame.opcode in CTRL_OPCODES:
            return frame
        if frame.opcode is not Opcode.CONT:
            self._compressed, self._fragments = frame.rsv1, bytearray()
        if not self._compressed:
            return frame
        self._fragments += frame.data
        if max_size is not None and len(self._fragments) > max_size:
            raise PayloadTooBig(None, max_size)
        data: Any = b""
        if frame.fin:
            whole, self._fragments = Frame(Opcode.BINARY, bytes(self._fragments), True, True), bytearray()
            data = super().decode(whole, max_size=max_size).data
        return Frame(frame.opcode, data, frame.fin, False, frame.rsv2, frame.rsv3)


class WholeMessageDeflateFactory(ServerPerMessageDeflateFactory):
    """Negotiates as the library does."""

    def process_request_params(
        self, params: Sequence[ExtensionParameter], accepted_extensions: Sequence[Any]
    ) -> tuple[list[ExtensionParameter], PerMessageDeflate]:
        """The parameters that are agreed on, and the extension for one connection."""
        answer, agreed = super().process_request_params(params, accepted_extensions)
        return answer, WholeMessageDeflate(
            agreed.remote_no_context_takeover,
            agreed.local_no_context_takeover,
            agreed.remote_max_window_bits,
            agreed.local_max_window_bits,
            agreed.compress_settings,
        )
