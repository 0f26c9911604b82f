// The item in the status bar: tokens of the last response, sums of the session, and what went wrong.
'use strict';

const UNREACHABLE = new Set(['connection_error', 'timeout', 'invalid_answer', 'invalid_address', 'NoPermissions']);
const MOST = 100; // models with a line of their own

/** 999, 1.2k, 34k, 5.6M. */
function short(count) {
  const [size, unit] = count < 1000 ? [1, ''] : count < 999_500 ? [1000, 'k'] : [1_000_000, 'M'];
  const scaled = count / size;
  return `${unit && scaled < 9.95 ? scaled.toFixed(1) : Math.round(scaled)}${unit}`;
}

class Status {
  constructor(vscode, shown) {
    this.vscode = vscode;
    this.shown = shown;
    this.running = 0;
    this.sums = new Map();
    this.item = vscode.window.createStatusBarItem('tokens', vscode.StatusBarAlignment.Right, 100);
    this.item.name = 'Open Responses: Tokens';
    this.item.command = 'openresponses.manage';
    this.draw();
  }

  began() {
    this.running += 1;
    this.draw();
  }

  ended() {
    this.running -= 1;
    this.draw();
  }

  /** The counts of a response. */
  used(model, usage) {
    this.last = usage;
    if (!this.sums.has(model) && this.sums.size >= MOST) return;
    const sum = this.sums.get(model) ?? { responses: 0, input: 0, cached: 0, output: 0, reasoning: 0 };
    this.sums.set(model, sum);
    sum.responses += 1;
    for (const name of Object.keys(usage)) sum[name] += usage[name];
  }

  reachable() {
    this.error = undefined;
    this.draw();
  }

  failed(error) {
    if (UNREACHABLE.has(error.code)) this.error = error;
    this.draw();
  }

  /** Shows the user what is wrong, with what could be done about it. */
  async explain(error) {
    const action = error.code === 'NoPermissions' ? 'Set API Key' : 'Set Server Address';
    const chosen = await this.vscode.window.showErrorMessage(`Open Responses: ${error.message}`, action);
    if (chosen) await this.vscode.commands.executeCommand(`openresponses.${action === 'Set API Key' ? 'setApiKey' : 'setAddress'}`);
  }

  draw() {
    const { item, vscode } = this;
    const icon = this.error ? '$(warning)' : this.running > 0 ? '$(loading~spin)' : '$(hubot)';
    const counts = this.last ? `↑${short(this.last.input)} ↓${short(this.last.output)}` : 'Open Responses';
    item.text = `${icon} ${counts}`;
    item.backgroundColor = this.error ? new vscode.ThemeColor('statusBarItem.warningBackground') : undefined;
    item.tooltip = this.#tooltip();
    if (this.shown()) item.show();
    else item.hide();
  }

  #tooltip() {
    const tooltip = new this.vscode.MarkdownString();
    // names and messages are the server's: text, never Markdown
    if (this.error) tooltip.appendText(this.error.message).appendMarkdown('\n\n');
    if (this.sums.size === 0) return tooltip.appendText('No response yet in this session.');
    tooltip.appendMarkdown('Tokens of this session:\n\n');
    for (const [model, { responses, input, cached, output, reasoning }] of this.sums) {
      tooltip.appendMarkdown('- ').appendText(model.slice(0, 100));
      const more = [cached && `${short(cached)} of the input cached`, reasoning && `${short(reasoning)} of the output reasoning`];
      tooltip.appendMarkdown(`: ${[`${responses} × `, `↑${short(input)} ↓${short(output)}`].join('')}`);
      tooltip.appendMarkdown(more.some(Boolean) ? ` (${more.filter(Boolean).join(', ')})\n` : '\n');
    }
    return tooltip;
  }

  dispose() {
    this.item.dispose();
  }
}

module.exports = { Status, short };
