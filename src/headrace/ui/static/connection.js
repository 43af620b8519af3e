// The stream of status events, which outlives restarts of the run at the same address with the same token.

import { whole } from "./format.js";

const RETRY = 1500;
// Characters of a request's parameters. The server takes 64 KiB with all headers.
const LONGEST = 60000;

// patience: milliseconds after which an answer is not waited for any more; none: as long as it takes.
export async function ask(path, parameters = {}, patience = null) {
  const asked = new URLSearchParams(parameters).toString();
  if (asked.length > LONGEST) {
    throw new Error(`The question is too long: ${whole(asked.length)} characters as an address, of ${whole(LONGEST)} at most.`);
  }
  const answer = await fetch(`${path}?${asked}`, patience === null ? {} : { signal: AbortSignal.timeout(patience) });
  if (answer.status === 403) throw new Error("The run has restarted. Open the address that it printed.");
  if (!answer.headers.get("content-type")?.startsWith("application/json")) {
    throw new Error(`The server refused the question: ${await answer.text()}`);
  }
  const body = await answer.json();
  if (body.error) throw new Error(body.error);
  return body;
}

// on: {status(status), state(name)} with the states live, ended, lost and refused.
// A hidden tab holds no connection: HTTP/1.1 has six per host, for all tabs together.
export function listen(on) {
  let ended = false;
  let events = null;
  let waiting = null;
  const open = () => {
    if (document.hidden) return;
    events = new EventSource("api/events");
    events.addEventListener("status", (event) => {
      ended = false;
      on.state("live");
      on.status(JSON.parse(event.data));
    });
    events.addEventListener("end", () => {
      ended = true;
      on.state("ended");
      again();
    });
    events.addEventListener("error", () => {
      if (!ended) on.state("lost");
      again();
      checkRefused(on);
    });
  };
  const close = () => {
    clearTimeout(waiting);
    events?.close();
  };
  const again = () => {
    close();
    waiting = setTimeout(open, RETRY);
  };
  document.addEventListener("visibilitychange", () => {
    close();
    open();
  });
  open();
}

// A refused token looks like a lost connection to an EventSource.
async function checkRefused(on) {
  try {
    if ((await fetch("api/overview")).status === 403) on.state("refused");
  } catch {
    // Nobody is there: it stays lost.
  }
}
