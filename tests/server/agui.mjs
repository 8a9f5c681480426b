// Drives the official client: `node agui.mjs URL SCRIPT`, where a script is a JSON list of runs. Prints what it has then.
// The package is looked up where NODE_PACKAGES says.
import { createRequire } from "node:module";

const require = createRequire(`${process.env.NODE_PACKAGES}/`);
const { HttpAgent } = require("@ag-ui/client");
const [url, script] = [process.argv[2], JSON.parse(process.argv[3])];

const agent = new HttpAgent({ url, threadId: "from-node" });
const runs = [];
for (const step of script) {
  if (step.say) agent.addMessage({ id: crypto.randomUUID(), role: "user", content: step.say });
  // As CopilotKit does: what the user decided is written into the history as if it were the tool's result.
  for (const tool of step.fake ?? []) agent.addMessage({ id: crypto.randomUUID(), role: "tool", ...tool });
  const resume = step.payloads && agent.pendingInterrupts.map((each, number) => (
    { interruptId: each.id, status: "resolved", payload: step.payloads[number] }));
  const errors = [], results = [];
  await agent.runAgent(
    { runId: step.runId, ...(resume && { resume }) },
    {
      onRunErrorEvent: ({ event }) => void errors.push(event),
      onToolCallResultEvent: ({ event }) => void results.push(event),
    },
  );
  runs.push({ errors, results, pending: agent.pendingInterrupts, messages: agent.messages, state: agent.state });
}
console.log(JSON.stringify(runs));
