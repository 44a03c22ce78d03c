// A page that was loaded anew while its cell runs. JupyterLab brings widgets back only when the kernel
// is idle; its control channel and a subshell answer at once, so the panel asks them itself, in
// Jupyter's own protocol. Elsewhere (VS Code) there is no such address, and the panel waits.

const random = () => Array.from({ length: 8 }, () => Math.floor(Math.random() * 65536).toString(16)).join("");

// Calls `receive` with the past and with all that comes for the widget model `comm`, as `openChannel` does. Returns what ends that.
export function reachKernel(address, receive) {
  const { kernel, comm } = address ?? {};
  const config = JSON.parse(document.getElementById("jupyter-config-data")?.textContent ?? "{}");
  if (!kernel || !config.baseUrl) return null;
  const session = random();
  const url = new URL(`${config.baseUrl}api/kernels/${kernel}/channels?session_id=${session}`, location.href);
  url.protocol = url.protocol.replace("http", "ws");
  if (config.token) url.searchParams.set("token", config.token);
  const socket = new WebSocket(url);
  listen(socket, session, comm, receive);
  return () => socket.close();
}

// In steps: is the model in this kernel? Then a subshell, in it a comm to the manager of the widgets,
// and through that the states of all of them. (ipykernel 7.4 hands a message to the model itself to the
// main shell, wherever it was sent to.)
function listen(socket, session, comm, receive) {
  const manager = random();
  let subshell = null;
  const send = (channel, type, content, metadata = {}) => {
    const header = { msg_id: random(), msg_type: type, username: "", session, date: new Date().toISOString(), version: "5.4" };
    if (channel === "shell") header.subshell_id = subshell;
    socket.send(JSON.stringify({ header, parent_header: {}, metadata, content, buffers: [], channel }));
  };
  const news = {
    comm_info_reply: ({ comms }) => (comms[comm] ? send("control", "create_subshell_request", {}) : receive({ gone: true })),
    create_subshell_reply: (content) => {
      subshell = content.subshell_id;
      send("shell", "comm_open", { comm_id: manager, target_name: "jupyter.widget.control", data: {} }, { version: "1.0.0" });
    },
    comm_msg: ({ comm_id: from, data: { method, states, content } }) => {
      if (from === comm && method === "custom") receive(content);
      if (from === comm && content?.ended) socket.close();
      if (from !== manager) return;
      const { history, ended } = states[comm].state;
      receive({ opened: true, history, ended });
      send("control", "delete_subshell_request", { subshell_id: subshell });
    },
    status: ({ execution_state: state }, parent) => {
      if (["restarting", "dead"].includes(state)) receive({ gone: true });
      if (state === "idle" && parent.session === session && parent.msg_type === "comm_open") send("shell", "comm_msg", { comm_id: manager, data: { method: "request_states" } });
    },
  };
  socket.binaryType = "arraybuffer";
  socket.addEventListener("open", () => send("control", "comm_info_request", { target_name: "jupyter.widget" }));
  socket.addEventListener("message", ({ data }) => {
    const { header, parent_header: parent, content } = JSON.parse(typeof data === "string" ? data : textOf(data));
    news[header.msg_type]?.(content, parent);
  });
}

// The message of a frame with buffers, which come after it: their number and offsets stand before it.
function textOf(frame) {
  const view = new DataView(frame);
  const end = view.getUint32(0) > 1 ? view.getUint32(8) : frame.byteLength;
  return new TextDecoder().decode(new Uint8Array(frame, view.getUint32(4), end - view.getUint32(4)));
}
