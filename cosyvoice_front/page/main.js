// What the page's controls do.

import { json, key } from "./api.js";
import { byId } from "./dom.js";
import { Player } from "./player.js";
import { Reading } from "./reading.js";
import { curl, python } from "./snippets.js";
import { readSeed } from "./speech.js";
import { Take } from "./take.js";
import { VoiceForm, VoiceList } from "./voices.js";

const FIELDS = { input: "text", voice: "voice", speed: "speed", seed: "seed", instructions: "instructions" };

const player = new Player();
const voices = new VoiceList();
let model = "cosyvoice2";
let turn = 0; // of whoever asked last
const reading = new Reading(() => request(""));
const takes = [makeTake(0), makeTake(1)];

function makeTake(index) {
  const take = new Take(player, {
    onState: (state) => tell(state, take),
    onKeepSeed: (seed) => keepSeed(byId(["seed", "seed-b"][index]), seed),
    onReplay: shown(() => replay(take)),
  });
  byId("takes").append(take.element);
  return take;
}

// --- speaking

function request(seed) {
  const instructions = byId("instructions").value.trim();
  const speed = Number(byId("speed").value);
  return {
    model,
    voice: voices.chosen,
    input: byId("text").value,
    ...(instructions && { instructions }),
    ...(speed !== 1 && { speed }),
    ...(seed && { seed }),
  };
}

function requests() {
  const seeds = byId("compare").checked ? ["seed", "seed-b"] : ["seed"];
  return seeds.map((id) => request(readSeed(byId(id).value)));
}

async function speak() {
  clearError();
  const asked = requests();
  const isMyTurn = await takeTurn();
  if (!isMyTurn()) return;
  takes[0].title = asked.length > 1 ? "A" : "Speech";
  takes[1].title = "B";
  takes[1].element.hidden = true;
  asked.forEach((one, index) => takes[index].prepare(one));
  for (const take of takes.slice(0, asked.length)) {
    if (isMyTurn()) await take.speak();
  }
}

async function replay(take) {
  const isMyTurn = await takeTurn();
  if (isMyTurn()) await take.replay();
}

/** Silence everything, also what waits for its turn. Returns whether nobody has asked for more since. */
async function takeTurn() {
  const mine = ++turn;
  await Promise.all(takes.map((take) => take.stop()));
  return () => mine === turn;
}

function tell(state, take) {
  if (state === "prepared") return;
  byId("status").textContent = {
    asking: "Waiting for the first audio.",
    speaking: "Speaking.",
    replaying: "Playing again.",
    done: `Done: ${take.seconds.toFixed(1)} seconds of speech.`,
    stopped: "Stopped.",
    failed: "",
  }[state];
}

function keepSeed(field, seed) {
  field.value = seed;
  showCode();
  byId("status").textContent = `Seed ${seed} is kept.`;
}

// --- errors and keys

function showError(error) {
  if (error.status === 401) return askForKey(error);
  byId("error").textContent = error.message;
  if (error.param in FIELDS) byId(FIELDS[error.param]).setAttribute("aria-invalid", "true");
}

function clearError() {
  byId("error").textContent = "";
  for (const element of document.querySelectorAll("[aria-invalid]")) element.removeAttribute("aria-invalid");
}

function askForKey(error) {
  byId("error").textContent = key.get() ? error.message : "";
  byId("key-form").hidden = false;
  byId("key").focus();
}

async function useKey() {
  clearError();
  key.set(byId("key").value);
  await load();
  byId("key-form").hidden = true;
  byId("key").value = "";
  byId("status").textContent = "The key is kept for this tab.";
  byId("speak").focus();
}

// --- lists and code

async function load() {
  const models = await json("v1/models");
  model = models.data[0].id;
  await voices.load();
  showCode();
}

function showCode() {
  byId("speed-shown").textContent = `${Number(byId("speed").value).toFixed(2)}×`;
  byId("second-seed").hidden = !byId("compare").checked;
  try {
    const present = requests()[0];
    const base = new URL("v1", document.baseURI).href;
    byId("curl").textContent = curl(present, base, key.get() !== "");
    byId("python").textContent = python(present, base, key.get() !== "");
  } catch (error) {
    byId("curl").textContent = byId("python").textContent = error.message;
  }
}

async function copy(id) {
  await navigator.clipboard.writeText(byId(id).textContent);
  byId("status").textContent = "Copied.";
}

async function removeVoice() {
  const name = voices.chosen;
  if (!confirm(`Remove the voice ${name}?`)) return;
  await voices.remove();
  byId("status").textContent = `The voice ${name} is removed.`;
  showCode();
}

async function welcome(name) {
  clearError();
  await voices.load(name);
  byId("status").textContent = `The voice ${name} can be used.`;
  showCode();
}

// --- events

/** A handler that shows what goes wrong. */
function shown(action) {
  return (event) => {
    event.preventDefault();
    action().catch(showError);
  };
}

const start = shown(speak);
const end = shown(takeTurn);
byId("speech-form").onsubmit = start;
byId("speech-form").oninput = () => {
  showCode();
  reading.update();
};
byId("stop").onclick = end;
byId("key-form").onsubmit = shown(useKey);
byId("remove-voice").onclick = shown(removeVoice);
for (const button of document.querySelectorAll("[data-copies]")) {
  button.onclick = shown(() => copy(button.dataset.copies));
}
document.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) start(event);
  if (event.key === "Escape") end(event);
});
new VoiceForm({ onError: showError, onAdded: (name) => welcome(name).catch(showError) });
showCode();
load().catch(showError);
