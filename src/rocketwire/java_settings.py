"""What Java's clients call their settings, for users who bring those names along."""

from __future__ import annotations

from typing import Final

#: Java's names, in lower case, and what they are here.
JAVA_NAMES: Final = {
    java.lower(): ours
    for java, ours in {
        "sendLatencyFaultEnable": "fault ('java4', 'java5' or the default; 'off' for false)",
        "startDetectorEnable": "fault='java5-detector'",
        "latencyMax": "FaultPolicy.java4(latency_table=...)",
        "notAvailableDuration": "FaultPolicy.java4(latency_table=...)",
        "retryTimesWhenSendFailed": "retries",
        "retryTimesWhenSendAsyncFailed": "async_retries",
        "retryAnotherBrokerWhenNotStoreOK": "retry_another_broker_when_not_stored",
        "sendMsgTimeout": "send_timeout (in seconds)",
        "sendMsgMaxTimeoutPerRequest": "attempt_timeout (in seconds)",
        "compressMsgBodyOverHowmuch": "compress_over",
        "compressType": "compression",
        "producerGroup": "group",
        "consumerGroup": "group",
        "enableMsgTrace": "trace=True",
        "enableTrace": "trace=True",
        "customizedTraceTopic": "trace='TOPIC'",
        "traceTopic": "trace='TOPIC'",
        "createTopicKey": "default_topic",
        "defaultTopicQueueNums": "default_topic_queues",
        "namesrvAddr": "name_servers",
        "pollNameServerInterval": "route_refresh (in seconds)",
        "heartbeatBrokerInterval": "heartbeat_interval (in seconds)",
        "useTLS": "tls",
        "consumeThreadMin": "workers",
        "consumeThreadMax": "workers",
        "consumeMessageBatchMaxSize": "batch",
        "pullBatchSize": "pull_batch",
        "maxReconsumeTimes": "max_attempts (tries, so one more)",
        "consumeFromWhere": "start",
        "messageModel": "broadcast",
        "allocateMessageQueueStrategy": "allocation",
        "pullThresholdForQueue": "max_queue_messages",
        "consumeConcurrentlyMaxSpan": "max_queue_span",
        "persistConsumerOffsetInterval": "commit_interval (in seconds)",
    }.items()
}
