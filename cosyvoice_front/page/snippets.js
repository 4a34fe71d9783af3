// The present request for other programs.

import { asJson } from "./speech.js";

const KEY_VARIABLE = "COSYVOICE_API_KEY";

/** A command for a POSIX shell. */
export function curl(request, base, withKey) {
  const lines = [
    `curl -sS --fail-with-body ${base}/audio/speech`,
    ...(withKey ? [`-H "Authorization: Bearer $${KEY_VARIABLE}"`] : []),
    `-H 'Content-Type: application/json'`,
    `-d ${quoted(asJson({ ...request, response_format: "wav" }))}`,
    "-o speech.wav",
  ];
  return lines.join(" \\\n  ");
}

/** A program with OpenAI's client. A text of JSON is one of Python, too. */
export function python(request, base, withKey) {
  const { seed, ...fields } = { ...request, response_format: "wav" };
  const given = Object.entries(fields).map(([name, value]) => `    ${name}=${JSON.stringify(value)},`);
  return [
    ...(withKey ? ["import os", ""] : []),
    "from openai import OpenAI",
    "",
    `client = OpenAI(base_url="${base}", api_key=${withKey ? `os.environ["${KEY_VARIABLE}"]` : '"none"'})`,
    "with client.audio.speech.with_streaming_response.create(",
    ...given,
    ...(seed ? [`    extra_body={"seed": ${seed}},`] : []),
    ") as response:",
    '    response.stream_to_file("speech.wav")',
  ].join("\n");
}

function quoted(text) {
  return `'${text.replaceAll("'", "'\\''")}'`;
}
