// The stream of what is new: opened again whenever it breaks, closed while nobody looks.

import { headers, signIn } from "./session.js";
import { FrameReader } from "./sse.js";

const PAUSE_MIN = 500;
const PAUSE_MAX = 5_000;
const SILENT_MAX = 15_000;
const HIDDEN_MAX = 30_000;

export class Stream {
  #aborter = null;
  #pause = PAUSE_MIN;
  #timer = null;
  #hiding = null;
  #wanted = true;

  // `take(name, content)` has each message; `down(text)` is told why there is none, "" when there is again.
  constructor(url, take, down) {
    this.url = url;
    this.take = take;
    this.down = down;
    document.addEventListener("visibilitychange", () => this.#visibility());
  }

  get isOpen() {
    return this.#aborter !== null;
  }

  async open() {
    this.#wanted = true;
    clearTimeout(this.#timer);
    if (this.#aborter) return;
    const aborter = (this.#aborter = new AbortController());
    let silence = null;
    const heard = () => {
      clearTimeout(silence);
      silence = setTimeout(() => aborter.abort(), SILENT_MAX);
    };
    try {
      heard();
      const response = await fetch(this.url, { signal: aborter.signal, cache: "no-store", headers: headers() });
      if (response.status === 401) {
        clearTimeout(silence);
        await signIn((await response.json()).error);
        this.#pause = 0;
        return;
      }
      if (!response.ok) throw new Error((await response.json()).error);
      const pieces = response.body.pipeThrough(new TextDecoderStream()).getReader();
      const frames = new FrameReader();
      for (;;) {
        const { value, done } = await pieces.read();
        if (done) throw new Error("the stream ended");
        heard();
        this.#pause = PAUSE_MIN;
        for (const frame of frames.push(value)) this.take(frame.event, JSON.parse(frame.data));
      }
    } catch (error) {
      if (this.#wanted) this.down(`the gateway does not answer (${error.message}); trying again`);
    } finally {
      clearTimeout(silence);
      this.#aborter = null;
      this.#again();
    }
  }

  #again() {
    if (!this.#wanted) return;
    this.#timer = setTimeout(() => this.open(), this.#pause);
    this.#pause = Math.min(PAUSE_MAX, Math.max(PAUSE_MIN, this.#pause * 2));
  }

  close() {
    this.#wanted = false;
    clearTimeout(this.#timer);
    this.#aborter?.abort();
  }

  #visibility() {
    clearTimeout(this.#hiding);
    if (document.hidden) this.#hiding = setTimeout(() => this.close(), HIDDEN_MAX);
    else if (!this.#wanted || !this.isOpen) {
      this.#pause = PAUSE_MIN;
      this.open();
    }
  }
}
