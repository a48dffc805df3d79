// Asks again and again: soon after something changed, seldom while nothing does, never while nobody looks.

const SOON_MS = 1500;
const SELDOM_MS = 20_000;
const GROWTH = 1.5;

export class Polling {
  /**
   * `look` asks once and says whether anything changed. `failed` gets what it throws, and says whether to go on.
   */
  constructor(look, failed) {
    this.look = look;
    this.failed = failed;
    this.wait = SOON_MS;
    this.timer = null;
    this.looking = false;
    this.again = false;
    document.addEventListener("visibilitychange", () => {
      if (!document.hidden) this.now();
    });
  }

  /** Looks at once, and soon again. */
  now() {
    this.wait = SOON_MS;
    this.again = this.looking;
    if (!this.looking) this.turn();
  }

  async turn() {
    clearTimeout(this.timer);
    if (document.hidden) return; // it goes on when the page is seen again
    this.looking = true;
    let goOn = true;
    try {
      this.wait = (await this.look()) ? SOON_MS : Math.min(SELDOM_MS, this.wait * GROWTH);
    } catch (problem) {
      this.wait = Math.max(Math.min(SELDOM_MS, this.wait * GROWTH), 1000 * (problem.retryAfter ?? 0));
      goOn = this.failed(problem);
    }
    this.looking = false;
    if (this.again) this.now();
    else if (goOn) this.timer = setTimeout(() => this.turn(), this.wait);
  }
}
