// Replays dead letters with the token, after a question, and shows how far a replay is.

import { html, useEffect, useRef, useState } from "./vendor/preact-htm.js";
import * as api from "./api.js";
import { count, plural } from "./format.js";
import { TokenForm } from "./token.js";

const EVERY_MS = 1000;

/** `letters`: the conditions, or {letter: id}; `started()` is called when the server has begun. */
export function ReplayButton({ name, id, text, what, letters, started }) {
  const [isAsked, setIsAsked] = useState(false);
  const [isBusy, setIsBusy] = useState(false);
  const [problem, setProblem] = useState(null);
  const chosen = JSON.stringify(letters);
  const form = useRef(null);
  const hasToken = Boolean(api.token());
  useEffect(() => setIsAsked(false), [chosen]);
  useEffect(() => { // where the user goes on: the token, then the confirmation
    const next = isAsked ? form.current?.querySelector("input, .danger") : null;
    next?.focus();
    next?.scrollIntoView({ block: "nearest" });
  }, [isAsked, hasToken]);
  const replay = async () => {
    setIsBusy(true);
    setProblem(null);
    try {
      await api.replay(name, letters);
      setIsAsked(false);
      started();
    } catch (error) {
      if (error.status === 401) api.forgetToken();
      setProblem(error.message);
    }
    setIsBusy(false);
  };
  return html`<div class="replay" ref=${form}>
    ${problem && html`<p class="notice bad" role="alert">${problem}</p>`}
    ${!isAsked ? html`<button type="button" onClick=${() => setIsAsked(true)}>${text} …</button>`
      : !hasToken ? html`<${TokenForm} id=${`token-${id}`} used=${() => setProblem("")}
        cancel=${() => setIsAsked(false)} />`
      : html`<p><strong>Replay ${what}?</strong> The records are emitted again as new tracked tuples:
          each is acked, or becomes a dead letter again.</p>
        <div class="inline"><button type="button" class="danger" disabled=${isBusy} onClick=${replay}>
          Replay</button><button type="button" onClick=${() => setIsAsked(false)}>Cancel</button></div>`}
  </div>`;
}

/** The progress of the topology's replay, asked while it runs, and what asks for it now. When one
 * has ended, `ended()` is called. */
export function useProgress(isWanted, name, ended) {
  const [progress, setProgress] = useState(null);
  const [round, setRound] = useState(0); // grows with each replay of this page
  useEffect(() => {
    if (!isWanted) return undefined;
    let timer = null;
    let isOver = false;
    let wasRunning = round > 0;
    const look = async () => {
      let answer = null;
      try {
        answer = await api.replayProgress(name);
      } catch {
        // the page says itself that it is not live
      }
      if (isOver) return;
      if (answer) setProgress(answer);
      if (answer && !answer.running) {
        if (wasRunning) ended();
        return;
      }
      wasRunning = true;
      timer = setTimeout(look, EVERY_MS);
    };
    look();
    return () => {
      isOver = true;
      clearTimeout(timer);
    };
  }, [isWanted, name, round]);
  return [progress, () => setRound((before) => before + 1)];
}

export function ReplayProgress({ progress }) {
  if (!progress?.total) return html`<p role="status"></p>`;
  const { total, acked, dead_again: again, not_settled: open, errors, running } = progress;
  const parts = [`${count(acked)} acked`, `${count(again)} dead again`, `${count(open)} not settled`];
  return html`<div class=${`notice ${running ? "" : again + open ? "bad" : "good"}`}>
    <p role="status"><strong>${running ? "Replaying" : "Replayed"} ${plural(total, "dead letter")}:
      </strong> ${parts.join(", ")}</p>
    ${running && html`<progress max=${total} value=${acked + again + open} aria-label="Replay" />`}
    ${errors.map((text, n) => html`<p key=${n}>${text}</p>`)}</div>`;
}
