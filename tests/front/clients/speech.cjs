// One call of openai's package for Node: node speech.cjs '{"baseURL", "apiKey", "maxRetries", "do", "create"}'.
// Prints {"bytes": base64} of the speech, or {"error": class, "status", "code", "param"}. With "do": "cancel" it
// aborts after the first piece, prints {"aborted": true}, and stays until its standard input ends.
const OpenAI = require("openai");

async function main(asked) {
  const { baseURL, apiKey, maxRetries } = asked;
  const client = new OpenAI.default({ baseURL, apiKey, maxRetries });
  const controller = new AbortController();
  const response = await client.audio.speech.create(asked.create, { signal: controller.signal });
  if (asked.do === "cancel") {
    await response.body.getReader().read();
    controller.abort();
    process.stdin.resume();
    return { aborted: true };
  }
  return { bytes: Buffer.from(await response.arrayBuffer()).toString("base64") };
}

main(JSON.parse(process.argv[2]))
  .catch((error) => ({ error: error.constructor.name, status: error.status, code: error.code, param: error.param }))
  .then((answer) => console.log(JSON.stringify(answer)));
