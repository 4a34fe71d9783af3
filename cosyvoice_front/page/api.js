// Calls of the front's API, with the key of this tab.

const KEY = "cosyvoice.key";

/** What the server refused or could not do, in its own words. */
export class ApiError extends Error {
  constructor(message, status = 0, param = null) {
    super(message);
    this.status = status;
    this.param = param;
  }
}

export const key = {
  get: () => sessionStorage.getItem(KEY) ?? "",
  set: (text) => sessionStorage.setItem(KEY, text),
};

/** The answer to a request; addresses are relative, so that the page works below any path. */
export async function call(path, options = {}) {
  const headers = new Headers(options.headers);
  if (key.get()) headers.set("Authorization", `Bearer ${key.get()}`);
  let answer;
  try {
    answer = await fetch(path, { ...options, headers });
  } catch (error) {
    throw error.name === "AbortError" ? error : new ApiError("The server can't be reached.");
  }
  if (!answer.ok) throw await refusal(answer);
  return answer;
}

export async function json(path, options) {
  return (await call(path, options)).json();
}

async function refusal(answer) {
  const body = await answer.json().catch(() => null);
  const message = body?.error?.message ?? `The server answered with status ${answer.status}.`;
  const wait = answer.headers.get("retry-after");
  const hint = wait ? ` Try again in ${wait} s.` : "";
  return new ApiError(message + hint, answer.status, body?.error?.param ?? null);
}
