"""VS Code's language-model interface: chat requests, and parts in both directions."""

from openresponses_bridge.dialects.vscode.conversation import conversation_digest
from openresponses_bridge.dialects.vscode.dialect import DIALECT
from openresponses_bridge.dialects.vscode.errors import LanguageModelError, LanguageModelErrorBody, error_body
from openresponses_bridge.dialects.vscode.inbound import Inbound
from openresponses_bridge.dialects.vscode.outbound import Outbound
from openresponses_bridge.dialects.vscode.reading import chat_of, decode_chat, read_message
from openresponses_bridge.dialects.vscode.request import from_vscode, to_vscode
from openresponses_bridge.dialects.vscode.types import ChatMessage, ChatRequest, ChatTool, Role, ToolMode

__all__ = [
    "DIALECT",
    "ChatMessage",
    "ChatRequest",
    "ChatTool",
    "Inbound",
    "LanguageModelError",
    "LanguageModelErrorBody",
    "Outbound",
    "Role",
    "ToolMode",
    "chat_of",
    "conversation_digest",
    "decode_chat",
    "error_body",
    "from_vscode",
    "read_message",
    "to_vscode",
]
