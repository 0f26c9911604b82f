"""VS Code's language-model interface: chat requests, and parts in both directions."""

from bridge.dialects.vscode.dialect import DIALECT
from bridge.dialects.vscode.inbound import Inbound
from bridge.dialects.vscode.outbound import Outbound
from bridge.dialects.vscode.reading import decode_chat
from bridge.dialects.vscode.request import from_vscode, to_vscode
from bridge.dialects.vscode.types import ChatMessage, ChatRequest, ChatTool, Role, ToolMode

__all__ = [
    "DIALECT",
    "ChatMessage",
    "ChatRequest",
    "ChatTool",
    "Inbound",
    "Outbound",
    "Role",
    "ToolMode",
    "decode_chat",
    "from_vscode",
    "to_vscode",
]
