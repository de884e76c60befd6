"""Runs OpenAI's official client against a server of Loquat and prints what worked."""

import json
import sys

import openai

client = openai.OpenAI(base_url=sys.argv[1], api_key="secret", max_retries=0)
model = client.models.list().data[0].id
assert client.models.retrieve(model).id == model
print("models", end=" ")

brief = {"model": model, "temperature": 0, "max_tokens": 24, "extra_body": {"enable_thinking": False}}
question = [{"role": "user", "content": "How do I quit?"}]

answer = client.chat.completions.create(messages=question, seed=1, logprobs=True, top_logprobs=1, **brief)
text = answer.choices[0].message.content
assert text and answer.choices[0].finish_reason in ("stop", "length")
assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
assert len(answer.choices[0].logprobs.content) == answer.usage.completion_tokens
print("chat", end=" ")

stream = client.chat.completions.create(messages=question, stream=True, stream_options={"include_usage": True}, **brief)
chunks = list(stream)
streamed = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
assert streamed == text, (streamed, text)
assert chunks[-1].usage.completion_tokens == answer.usage.completion_tokens
print("stream", end=" ")

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}
look = [{"role": "user", "content": [{"type": "text", "text": "What is this?"}, picture]}]
seen = client.chat.completions.create(messages=look, **brief)
assert seen.choices[0].message.content
print("image", end=" ")

parameters = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
tools = [{"type": "function", "function": {"name": "weather", "description": "of a city", "parameters": parameters}}]
with_tools = client.chat.completions.create(messages=question, tools=tools, **brief)
assert with_tools.usage.prompt_tokens > answer.usage.prompt_tokens
call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": json.dumps({"city": "Paris"})}}
told = question + [
    {"role": "assistant", "content": None, "tool_calls": [call]},
    {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
]
assert client.chat.completions.create(messages=told, tools=tools, **brief).choices[0].message
print("tools", end=" ")

schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 9}},
          "required": ["n"], "additionalProperties": False}
form = {"type": "json_schema", "json_schema": {"name": "number", "schema": schema, "strict": True}}
held = client.chat.completions.create(messages=question, response_format=form, **{**brief, "max_tokens": 100})
assert 0 <= json.loads(held.choices[0].message.content)["n"] <= 9
print("json_schema", end=" ")

try:
    client.chat.completions.create(messages=question, n=2, **brief)
    sys.exit("n=2 was not refused")
except openai.BadRequestError as error:
    assert "ask once" in str(error)
try:
    openai.OpenAI(base_url=sys.argv[1], api_key="wrong", max_retries=0).models.list()
    sys.exit("a wrong key was not refused")
except openai.AuthenticationError:
    print("errors")
