// Parts at the pace at which VS Code shows them.
//
// The extension host collects parts until none came for 30 ms, or until there are 31: a model that sends text each
// 10 ms is shown in jerks of a third of a second. Text that comes quicker than every 40 ms is put together here.
'use strict';

const PAUSE = 40; // ms; more than the host waits for

const joinable = line =>
  line.type === 'LanguageModelTextPart'
  || (line.type === 'LanguageModelThinkingPart' && typeof line.value === 'string' && !line.metadata);

class Pace {
  /** `report(line)` passes one on. */
  constructor(report) {
    this.report = report;
    this.last = -Infinity;
  }

  add(line) {
    if (!joinable(line)) {
      this.flush();
      this.#pass(line);
      return;
    }
    const { held } = this;
    if (held && held.type === line.type && held.id === line.id) {
      held.pieces.push(line.value);
      return;
    }
    this.flush();
    const left = this.last + PAUSE - performance.now();
    if (left <= 0) {
      this.#pass(line);
      return;
    }
    this.held = { ...line, pieces: [line.value] };
    this.timer = setTimeout(() => this.flush(), left);
  }

  /** Passes on what is held. */
  flush() {
    const { held } = this;
    this.drop();
    if (held) {
      const { pieces, ...line } = held;
      this.#pass({ ...line, value: pieces.join('') });
    }
  }

  /** Forgets what is held. */
  drop() {
    clearTimeout(this.timer);
    this.held = undefined;
  }

  /** Waits until the host has passed on what was reported: what it still holds is lost when a provider throws. */
  async settle() {
    this.flush();
    const left = this.last + 3 * PAUSE - performance.now();
    if (left > 0) await new Promise(resolve => setTimeout(resolve, left));
  }

  #pass(line) {
    this.last = performance.now();
    this.report(line);
  }
}

module.exports = { Pace };
